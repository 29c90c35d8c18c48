"""Solves a CP-SAT model for one metric after the other, each held at its optimum while the next is improved."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from ortools.sat.python import cp_model

Expr = cp_model.LinearExpr | int

_WIDEST = 1 << 50
"""Largest weighted sum of metrics that is handed to the solver as one objective."""


@dataclass(frozen=True)
class Limits:
    """How long (a deadline of ``time.perf_counter``), with how many workers and from which seed to search."""

    deadline: float
    workers: int = 1
    seed: int = 0

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.perf_counter()


@dataclass(frozen=True)
class Objective:
    """One metric as an expression of the model, with values that it cannot go below or above."""

    name: str
    expr: Expr
    most: int
    least: int = 0


class Search:
    """A model that is solved lexicographically.

    ``bounds``: per metric asked for, the least value not excluded by proof, or ``None``. ``proven``: every
    question so far was answered with proof. ``infeasible``: proven to have no solution.
    """

    def __init__(self, model: cp_model.CpModel, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self.bounds: dict[str, int | None] = {}
        self.proven, self.infeasible = True, False
        self._best: cp_model.CpSolver | None = None

    @property
    def solved(self) -> bool:
        """Whether there is a solution to take values from."""
        return self._best is not None

    def value(self, expr: Expr) -> int:
        """Value of an expression in the latest solution."""
        assert self._best is not None
        return int(self._best.value(expr))

    def minimize(self, objectives: Sequence[Objective]) -> None:
        """Minimize the metrics in their order, each held for the next; stops asking once a proof is missing."""
        for group in _groups(objectives):
            self.bounds |= {each.name: None for each in group}
            if self.proven:
                self._minimize_together(group)

    def _minimize_together(self, group: Sequence[Objective]) -> None:
        if not (self._is_complete() and all(self.value(each.expr) == each.least for each in group)):
            self._improve(group)
        if self.proven:
            for each in group:
                self.bounds[each.name] = self.value(each.expr)
                self.model.add(each.expr <= self.value(each.expr))

    def _is_complete(self) -> bool:
        """Whether the latest solution has values for all variables: some may have been added since."""
        solution = [] if self._best is None else self._best.response_proto.solution
        return self._best is not None and len(solution) == len(self.model.proto.variables)

    def _improve(self, group: Sequence[Objective]) -> None:
        weights = [prod(each.most + 1 for each in group[i + 1 :]) for i in range(len(group))]
        self.model.minimize(sum(weight * each.expr for weight, each in zip(weights, group, strict=True)))
        status, bound = self._solve()
        self.proven = status == cp_model.OPTIMAL
        self.infeasible = status == cp_model.INFEASIBLE
        if bound is not None:
            self.bounds[group[0].name] = max(group[0].least, bound // weights[0])

    def _solve(self) -> tuple[cp_model.CpSolverStatus, int | None]:
        if self.limits.left <= 0:
            return cp_model.UNKNOWN, None
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.limits.workers
        solver.parameters.random_seed = self.limits.seed
        solver.parameters.max_time_in_seconds = self.limits.left
        # Presolve costs more than it saves on models of this size; the full linear relaxation pays.
        solver.parameters.cp_model_presolve = False
        solver.parameters.linearization_level = 2
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._best = solver
            self.hint(solver.response_proto.solution)
        known = status in (cp_model.FEASIBLE, cp_model.UNKNOWN)
        return status, ceil(solver.best_objective_bound - 1e-6) if known else None

    def extend_hint(self, values: Mapping[cp_model.IntVar, int]) -> None:
        """Add to the hint what new variables would be in the latest solution."""
        for variable, value in values.items():
            self.model.add_hint(variable, value)

    def hint(self, values: Sequence[int]) -> None:
        """Start the next search from these values of the model's first variables."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        self.model.proto.solution_hint.vars.extend(range(len(values)))
        self.model.proto.solution_hint.values.extend(values)


def _groups(objectives: Sequence[Objective]) -> list[list[Objective]]:
    """Consecutive objectives that fit one weighted sum, at most two to a sum: more slow the proof down."""
    groups: list[list[Objective]] = []
    for objective in objectives:
        fits = groups and prod(each.most + 1 for each in [*groups[-1], objective]) < _WIDEST
        if fits and len(groups[-1]) < 2:
            groups[-1].append(objective)
        else:
            groups.append([objective])
    return groups
