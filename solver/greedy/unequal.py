"""Machines whose domains differ in size: the kubelet averages there, we count, and the better answer is given."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from models import Request
from solver.score import Scorer
from topologies.graph import Machine


def better_of(machine: Machine, free: int, found: Sequence[int], **options: Any) -> int:  # noqa: ANN401 - pydantic's
    """That of the allocations (masks, equally large) with the better metrics for a request with the options.

    Equally good ones: the first.
    """
    if len(set(found)) == 1:
        return found[0]
    scorer, request = _scorer_of(machine), Request(cpus=found[0].bit_count(), **options)
    return min(found, key=lambda taken: tuple(scorer.metrics(free, request, taken).values()))


@lru_cache(maxsize=32)
def _scorer_of(machine: Machine) -> Scorer:
    return Scorer(machine)
