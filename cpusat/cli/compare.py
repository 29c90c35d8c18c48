"""The greedy answer beside the best one: where they differ, and what is proven."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from models import Result, format_cpuset

Proof = Literal["optimal", "bound", "not reached"]


@dataclass(frozen=True)
class MetricRow:
    """One metric. ``greedy`` is ``None`` where greedy found nothing; no value below ``bound`` is possible."""

    metric: str
    greedy: int | None
    best: int
    bound: int | None
    proof: Proof

    @property
    def gain(self) -> int:
        """How much lower the best answer is; negative where that pays for a metric that matters more."""
        return 0 if self.greedy is None else self.greedy - self.best


@dataclass(frozen=True)
class Comparison:
    """Two answers to the same requests."""

    greedy: Result
    best: Result

    def rows(self) -> Iterator[MetricRow]:
        """The metrics of all requests together, in their order."""
        for metric, value in self.best.metrics.items():
            bound = value if self.best.status == "optimal" else self.best.bounds.get(metric)
            yield MetricRow(metric, self.greedy.metrics.get(metric), value, bound, _proof(value, bound))

    @property
    def is_even(self) -> bool:
        """Whether greedy found an answer, and one that is as good in every metric."""
        return bool(self.greedy.allocations) and not any(row.gain for row in self.rows())

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON values; ``cpusets`` are the greedy answer's, by request."""
        cpusets = {given.request: format_cpuset(given.cpuset) for given in self.greedy.allocations}
        return {
            "greedy": {"status": self.greedy.status, "cpusets": cpusets},
            "metrics": list(map(asdict, self.rows())),
        }


def _proof(value: int, bound: int | None) -> Proof:
    if bound is None:
        return "not reached"
    return "optimal" if bound == value else "bound"
