"""Limits of a solve: its deadline, and the workers and seed of CP-SAT."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass
class Limits:
    """A deadline of ``time.perf_counter`` in seconds; the workers and the seed of CP-SAT.

    ``paused_for``: seconds that the limits do not count, such as those of loading OR-Tools.
    """

    deadline: float
    workers: int = 1
    seed: int = 0
    paused_for: float = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Extend the deadline by the time that the block takes."""
        begin = time.perf_counter()
        yield
        spent = time.perf_counter() - begin
        self.deadline += spent
        self.paused_for += spent

    def extended(self, seconds: float) -> "Limits":
        """The same limits with more seconds, counted from now if the deadline has passed."""
        return replace(self, deadline=max(self.deadline, time.perf_counter()) + seconds)
