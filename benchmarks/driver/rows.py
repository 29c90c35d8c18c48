"""What is measured of the driver, as rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypedDict

from benchmarks.timing import quantile


@dataclass(frozen=True)
class CallRow:
    """One kind of call on one machine: milliseconds, ``ratio`` of the median to an empty CP-SAT solve, and MB
    resident early on and in the end. ``fallbacks``: how many were answered by greedy in place of CP-SAT.
    """

    machine: str
    engine: str
    call: str
    calls: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    ratio: float
    driver_mb: tuple[int, int] | None = None
    solver_mb: tuple[int, int] | None = None
    fallbacks: int | None = None

    def cells(self) -> list[str]:
        """As text, in the order of ``HEADINGS``."""
        times = (f"{each:.1f}" for each in (self.median_ms, self.p99_ms, self.worst_ms, self.ratio))
        grown = ("" if mb is None else f"{mb[0]} to {mb[1]}" for mb in (self.driver_mb, self.solver_mb))
        instead = "" if self.fallbacks is None else str(self.fallbacks)
        return [self.machine, self.engine, self.call, str(self.calls), *times, *grown, instead]


HEADINGS = (
    "machine",
    "engine",
    "call",
    "calls",
    "median ms",
    "p99 ms",
    "worst ms",
    "x empty solve",
    "driver MB",
    "solver MB",
    "greedy instead",
)


class Times(TypedDict):
    """The times of a row."""

    median_ms: float
    p99_ms: float
    worst_ms: float
    ratio: float


def times(seconds: Sequence[float], empty_solve: float) -> Times:
    """The times of a row; ``empty_solve`` in milliseconds."""
    found = [1000 * each for each in seconds]
    middle = median(found)
    return {
        "median_ms": middle,
        "p99_ms": quantile(found, 0.99),
        "worst_ms": max(found),
        "ratio": middle / empty_solve,
    }
