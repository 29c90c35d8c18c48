"""The exact engine's front: one request by tables, several by the joint model."""

from collections.abc import Sequence

from solver.cpsat.joint import JointModel
from solver.cpsat.objectives import objectives
from solver.cpsat.outcome import Outcome
from solver.cpsat.search import Limits, Search
from solver.cpsat.single import solve_single
from solver.problem import Problem


def solve_exact(problem: Problem, limits: Limits, hint: Sequence[int] | None = None) -> Outcome:
    """The best allocation of the problem, as far as the limits allow; ``hint`` is a valid one to start from."""
    if len(problem.demands) == 1:
        return solve_single(problem, limits, None if hint is None else hint[0])
    return solve_joint(problem, limits, hint)


def solve_joint(problem: Problem, limits: Limits, hint: Sequence[int] | None = None) -> Outcome:
    """The best allocations of several requests, by all metrics and the tie rule."""
    if not all(demand.parts for demand in problem.demands):
        return Outcome(None, proven=True)
    model = JointModel(problem)
    search = Search(model.model, limits)
    if hint is not None:
        search.extend_hint(model.hint(hint))
    search.minimize(objectives(problem, model.metrics, model.metrics))
    if not search.solved:
        return Outcome(None, search.infeasible, search.bounds)
    bounds = dict(search.bounds)
    for request in model.requests:
        request.minimize_ties(search)
    return Outcome(model.placed(search), search.proven, bounds)
