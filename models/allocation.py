"""Answers: which CPUs each request gets and how good that is, or why no CPUs can be given."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.cpuset import CPUSet
from models.errors import InfeasibleError, UnknownError
from models.request import Policy

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
Engine = Literal["greedy", "dp", "cpsat"]
"""The kubelet's algorithm; dynamic programming, and counting; CP-SAT."""

Metrics = dict[str, int]
"""Metric name to value, in the order in which metrics count; lower is better."""


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Allocation(_Value):
    """The CPUs of one request. ``mems``: the NUMA nodes of its CPUs, empty on a machine without NUMA.

    ``metrics`` are those of this allocation alone; ``greedy`` are the greedy answer's, when it was computed.
    """

    request: str
    cpuset: CPUSet
    mems: CPUSet
    policy: Policy
    metrics: Metrics
    greedy: Metrics | None = None


class Rule(_Value):
    """One rule of a clash: the option's name, the request it belongs to, and its numbers (CPUs or domains)."""

    name: str
    request: str
    text: str
    asked: int | None = None
    available: int | None = None


class Nearest(_Value):
    """The nearest request that would be placed: which option to change, from what (``asked``) to what.

    ``request`` is empty where a constraint is to be left out.
    """

    request: str
    option: str
    asked: str
    instead: str

    def __str__(self) -> str:
        whose = f"Request {self.request!r}" if self.request else "The claim"
        return f"{whose} would be placed with {self.option} {self.instead}"


class Infeasible(_Value):
    """Rules that clash: a minimal set, so that without any one of them the others can be met."""

    rules: tuple[Rule, ...]
    nearest: Nearest | None = None

    def __str__(self) -> str:
        clash = "; ".join(rule.text for rule in self.rules)
        if len(self.rules) > 1:
            clash += "; these cannot all be met together"
        return clash if self.nearest is None else f"{clash}. {self.nearest}"


class Result(_Value):
    """What ``solve`` answers.

    ``status``: ``optimal`` with proof, ``feasible`` without, ``infeasible`` with the clash, ``unknown`` when
    neither an answer nor a proof was found in time. ``engine`` is the method that proved status and metrics;
    without proof, the one whose CPUs are given. ``metrics`` are those of all requests together; ``bounds`` is, per
    metric, the least value not excluded by proof, or ``None`` where that was not reached. Times in milliseconds.
    """

    status: Status
    engine: Engine
    allocations: tuple[Allocation, ...] = ()
    metrics: Metrics = {}
    bounds: dict[str, int | None] = {}
    infeasible: Infeasible | None = None
    notes: tuple[str, ...] = ()
    build_ms: float = 0.0
    solve_ms: float = 0.0

    def require(self) -> tuple[Allocation, ...]:
        """The allocations. Raises ``InfeasibleError`` if there can be none, ``UnknownError`` for lack of time."""
        if self.infeasible is not None:
            raise InfeasibleError(self.infeasible)
        if not self.allocations:
            raise UnknownError("; ".join(self.notes) or "nothing was found in time")
        return self.allocations
