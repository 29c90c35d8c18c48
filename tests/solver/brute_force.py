"""The right answer on small machines: every choice of CPUs, judged by verify's rules and the scorer."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from models import Constraint, Request, Topology, to_mask
from solver.score import Scorer
from solver.verify import violations


def brute_force(
    topology: Topology, free: frozenset[int], requests: Sequence[Request], constraints: Sequence[Constraint] = ()
) -> tuple[int, ...] | None:
    """The best allocations by the metrics and the tie rule, or ``None`` when nothing is allowed."""
    scorer, mask = Scorer(topology), to_mask(free)
    allowed = [
        taken
        for taken in _choices(scorer, mask, sorted(free), requests)
        if not any(violations(scorer, mask, requests, constraints, taken))
    ]

    def key(taken: tuple[int, ...]) -> tuple[object, ...]:
        metrics = tuple(scorer.joint(mask, requests, taken).values())
        return (metrics, *(scorer.tie_key(each) for each in taken))

    return min(allowed, key=key, default=None)


def _choices(
    scorer: Scorer, free: int, cpus: list[int], requests: Sequence[Request]
) -> Iterator[tuple[int, ...]]:
    if not requests:
        yield ()
        return
    for chosen in combinations(cpus, requests[0].cpus):
        mask = to_mask(chosen)
        if any(violations(scorer, free, requests[:1], (), [mask])):
            continue
        rest = [cpu for cpu in cpus if not mask >> cpu & 1]
        for others in _choices(scorer, free, rest, requests[1:]):
            yield (mask, *others)
