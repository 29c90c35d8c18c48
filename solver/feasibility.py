"""Whether requests can be met at all: the question that is repeated while a clash is explained."""

from collections.abc import Sequence

from models import Constraint, Request
from solver.counting import counted_out
from solver.explain import OutOfTime
from solver.greedy.allocate import allocate
from solver.limits import Limits
from solver.problem import Problem

SECOND_LOOK = 0.05
"""Seconds beyond the time limit that the explanation of a clash between requests may take."""


class Feasibility:
    """An oracle on variations of one problem; ``search``: whether it may ask CP-SAT where counting fails."""

    def __init__(self, problem: Problem, limits: Limits, *, search: bool) -> None:
        self._problem, self._given, self._search = problem, limits, search
        self._limits = limits.extended(SECOND_LOOK)

    def can_be_met(self, requests: Sequence[Request], constraints: Sequence[Constraint]) -> bool | None:
        """Whether there is an allocation: by counting, by example, by CP-SAT without an objective.

        ``None`` where that is not known. Raises ``OutOfTime``, though never for a single request: counting is
        exact then.
        """
        if len(requests) > 1 and self._limits.left < 0:
            raise OutOfTime
        problem = Problem.of(self._problem.prepared, self._problem.free, requests, constraints)
        if counted_out(problem.demands):
            return False
        if len(requests) == 1 or allocate(problem) is not None:
            return True
        return self._by_search(problem) if self._search else None

    def _by_search(self, problem: Problem) -> bool | None:
        with self._given.paused(), self._limits.paused():
            from solver.cpsat import batch

        return batch.is_feasible(problem, self._limits)

    def contradicts_infeasible(self) -> bool:
        """Whether an allocation is found for the problem itself."""
        try:
            return bool(self.can_be_met(self._problem.requests, self._problem.constraints))
        except OutOfTime:
            return False
