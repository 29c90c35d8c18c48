"""Solves a CP-SAT model for one metric after the other, each held at its optimum while the next is improved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from ortools.sat.python import cp_model

from models import DefectError
from solver.limits import Limits

Expr = cp_model.LinearExpr | int


@dataclass(frozen=True)
class Tuning:
    """CP-SAT's ``cp_model_presolve`` and ``linearization_level`` (0 to 2).

    On models of one request presolve costs more than it saves and the full linear relaxation pays; on models of
    several it is the other way round.
    """

    presolve: bool = False
    linearization: int = 2


@dataclass(frozen=True)
class Objective:
    """One metric as an expression of the model, with a value that it cannot go below."""

    name: str
    expr: Expr
    least: int = 0


FEASIBILITY = Objective("nothing", 0)
"""Asks whether there is any solution."""


class Search:
    """A model that is solved lexicographically.

    ``bounds``: per metric asked for, the least value not excluded by proof, or ``None``; ``settled``: those
    that are known to be optimal. ``proven``: every question so far was answered with proof. ``infeasible``:
    proven to have no solution.
    """

    def __init__(self, model: cp_model.CpModel, limits: Limits, tuning: Tuning) -> None:
        self.model, self.limits, self.tuning = model, limits, tuning
        self.bounds: dict[str, int | None] = {}
        self.settled: dict[str, int] = {}
        self.proven, self.infeasible = True, False
        self._best: cp_model.CpSolver | None = None

    @property
    def solved(self) -> bool:
        """Whether there is a solution to take values from."""
        return self._best is not None

    def value(self, expr: Expr) -> int:
        """Value of an expression in the latest solution. There must be one."""
        assert self._best is not None
        return int(self._best.value(expr))

    def minimize(self, objectives: Sequence[Objective]) -> None:
        """Minimize the metrics in order and hold each at its optimum. Stops when a proof is missing."""
        self.bounds |= {each.name: None for each in objectives}
        for each in objectives:
            if self.proven:
                self._minimize(each)

    def settle(self, objective: Objective, value: int) -> None:
        """Hold a metric at a value that is proven to be its optimum."""
        self.bounds[objective.name] = self.settled[objective.name] = value
        self.model.add(objective.expr <= value)

    def _minimize(self, objective: Objective) -> None:
        least = objective.expr if isinstance(objective.expr, int) else objective.least
        if not (self._is_complete() and self.value(objective.expr) == least):
            self._improve(objective)
        if self.proven:
            self.settle(objective, self.value(objective.expr))

    def _is_complete(self) -> bool:
        """Whether the latest solution has values for all variables: some may have been added since."""
        solution = [] if self._best is None else self._best.response_proto.solution
        return self._best is not None and len(solution) == len(self.model.proto.variables)

    def _improve(self, objective: Objective) -> None:
        self.model.minimize(objective.expr)
        status, bound = self._solve()
        self.proven = status == cp_model.OPTIMAL
        self.infeasible = status == cp_model.INFEASIBLE
        if bound is not None:
            self.bounds[objective.name] = max(objective.least, bound)

    def _solve(self) -> tuple[cp_model.CpSolverStatus, int | None]:
        # Read once: were it used up a moment later, a limit below 0 would be refused as if the model were wrong.
        left = self.limits.left
        if left <= 0:
            return cp_model.UNKNOWN, None
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.limits.workers
        solver.parameters.random_seed = self.limits.seed
        solver.parameters.max_time_in_seconds = left
        solver.parameters.cp_model_presolve = self.tuning.presolve
        solver.parameters.linearization_level = self.tuning.linearization
        status = solver.solve(self.model)
        if status == cp_model.MODEL_INVALID:
            raise DefectError(f"CP-SAT refused our model or its parameters: {self.model.validate()}")
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._best = solver
            self._hint(solver.response_proto.solution)
        known = status in (cp_model.FEASIBLE, cp_model.UNKNOWN)
        return status, ceil(solver.best_objective_bound - 1e-6) if known else None

    def extend_hint(self, values: Mapping[cp_model.IntVar, int]) -> None:
        """Add to the hint of the next search: variables of an allocation, or new ones in the latest solution."""
        for variable, value in values.items():
            self.model.add_hint(variable, value)

    def _hint(self, values: Sequence[int]) -> None:
        """Start the next search from these values of the model's first variables."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        self.model.proto.solution_hint.vars.extend(range(len(values)))
        self.model.proto.solution_hint.values.extend(values)
