"""What is measured of the driver, as rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import TypedDict

from benchmarks.timing import quantile


@dataclass(frozen=True)
class CallRow:
    """One kind of call on one machine: milliseconds, ``ratio`` of the median to an empty CP-SAT solve, and MB
    resident early on and in the end; ``answering``: of the process that answers the runtime. ``fallbacks``: how
    many were answered by greedy in place of CP-SAT. ``bare``: ratio of the median to a gRPC call whose handler
    flushes one file. ``stages``: mean milliseconds of a Prepare's stages.
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
    answering_mb: tuple[int, int] | None = None
    fallbacks: int | None = None
    bare: float | None = None
    stages: Mapping[str, float] | None = None

    def cells(self) -> list[str]:
        """As text, in the order of ``HEADINGS``."""
        times = (f"{each:.1f}" for each in (self.median_ms, self.p99_ms, self.worst_ms, self.ratio))
        memory = (self.driver_mb, self.solver_mb, self.answering_mb)
        grown = ("" if mb is None else f"{mb[0]} to {mb[1]}" for mb in memory)
        instead = "" if self.fallbacks is None else str(self.fallbacks)
        bare = "" if self.bare is None else f"{self.bare:.1f}"
        stages = ", ".join(f"{name} {spent:.1f}" for name, spent in (self.stages or {}).items())
        return [self.machine, self.engine, self.call, str(self.calls), *times, bare, *grown, instead, stages]


HEADINGS = (
    "machine",
    "engine",
    "call",
    "calls",
    "median ms",
    "p99 ms",
    "worst ms",
    "x empty solve",
    "x bare call",
    "driver MB",
    "solver MB",
    "NRI MB",
    "greedy instead",
    "stages, mean ms",
)


@dataclass(frozen=True)
class AttackRow:
    """What an attack on a node did to others: how long the runtime waited for the driver's handlers, and the
    kubelet for ordinary claims, in milliseconds.

    ``worst``: the handler that took longest; ``bare``: ratio of its time to a gRPC call whose handler flushes one
    file. ``dropped``: calls that the runtime has not waited for; ``unpinned``: containers that it then started
    without a mask. ``refused``: ordinary claims. ``peak_mb``: of the driver and its processes.
    """

    attack: str
    containers: int
    handlers: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    worst: str
    bare: float
    dropped: int
    unpinned: int
    prepares: int
    refused: int
    prepare_median_ms: float
    prepare_worst_ms: float
    peak_mb: int

    def cells(self) -> list[str]:
        """As text, in the order of ``ATTACK_HEADINGS``."""
        found = (getattr(self, each.name) for each in fields(self))
        return [f"{each:.1f}" if isinstance(each, float) else str(each) for each in found]


ATTACK_HEADINGS = (
    "attack",
    "containers",
    "handlers",
    "median ms",
    "p99 ms",
    "worst ms",
    "worst one",
    "x bare call",
    "dropped",
    "without mask",
    "prepares",
    "refused",
    "prepare median ms",
    "prepare worst ms",
    "peak MB",
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
