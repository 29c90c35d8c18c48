"""The exact engine's front: one request by tables, several by a coarse model and then the full one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from models import Metrics
from solver.cpsat.alone import MOST_REQUESTS, Single, bounds_alone, one_by_one, reached
from solver.cpsat.coarse import CoarseModel
from solver.cpsat.joint import JointModel
from solver.cpsat.search import Limits, Objective, Search
from solver.cpsat.single import solve_single
from solver.outcome import Outcome
from solver.problem import Problem
from solver.verify import violations

BUILD_SECONDS = 6e-5
"""What a core adds for each request to the time of building the full model, which nothing can interrupt."""

ANYTHING = Objective("nothing", 0)


def solve_exact(
    problem: Problem, limits: Limits, hint: tuple[int, ...] | None = None, single: Single | None = None
) -> Outcome:
    """The best allocation of the problem, as far as the limits allow; ``hint`` is a valid one to start from.

    ``single`` solves the requests of a joint problem one at a time, for bounds and a start; by default CP-SAT.
    """
    if not all(demand.parts for demand in problem.demands):
        return Outcome(None, proven=True)
    if len(problem.demands) == 1:
        return solve_single(problem, limits, None if hint is None else hint[0])
    return solve_joint(problem, limits, hint, single or partial(solve_single, limits=limits))


def solve_joint(problem: Problem, limits: Limits, hint: tuple[int, ...] | None, single: Single) -> Outcome:
    """The best allocations of several requests, by all metrics and the tie rule."""
    start, least = hint, Metrics()
    if len(problem.demands) <= MOST_REQUESTS:
        least = bounds_alone(problem, single)
        start = _best(problem, [hint, one_by_one(problem, single)])
    coarse = CoarseModel(problem)
    search = Search(coarse.model, replace(limits, presolve=True, linearization=1))
    if start is not None:
        search.extend_hint(coarse.hint(start))
    search.minimize([Objective(name, expr, least.get(name, 0)) for name, expr in coarse.metrics.items()])
    if search.infeasible:
        return Outcome(None, proven=True)
    start = _best(problem, [start, coarse.realize(search) if search.solved else None])
    settled = _reached(problem, start, [least, search.settled])
    if not _can_be_built(problem, limits):
        return Outcome(start, False, {**search.bounds, **settled})
    return _finish(problem, limits, start, settled, search.bounds)


def is_feasible(problem: Problem, limits: Limits) -> bool | None:
    """Whether the problem has any allocation, by models without an objective; ``None`` if time ran out."""
    if not all(demand.parts for demand in problem.demands):
        return False
    coarse = CoarseModel(problem)
    first = Search(coarse.model, limits)
    first.minimize([ANYTHING])
    if first.infeasible:
        return False
    if first.solved and _best(problem, [coarse.realize(first)]) is not None:
        return True
    if not _can_be_built(problem, limits):
        return None
    search = Search(JointModel(problem).model, limits)
    search.minimize([ANYTHING])
    return search.solved or (False if search.infeasible else None)


def _finish(
    problem: Problem,
    limits: Limits,
    start: tuple[int, ...] | None,
    settled: Metrics,
    least: Mapping[str, int | None],
) -> Outcome:
    """Solve the full model, from an allocation to start with and with the first metrics settled."""
    model = JointModel(problem)
    search = Search(model.model, limits)
    if start is not None:
        search.extend_hint(model.hint(start))
    for name, value in settled.items():
        search.settle(Objective(name, model.metrics[name]), value)
    rest = [name for name in model.metrics if name not in settled]
    # A bound holds for a metric as long as all metrics before it are at their optima.
    first = least.get(rest[0]) or 0
    search.minimize([Objective(name, model.metrics[name], first if name == rest[0] else 0) for name in rest])
    bounds = dict(search.bounds)
    if search.infeasible and start is None:
        return Outcome(None, proven=True)
    if not search.solved:
        return Outcome(start, False, bounds)
    search.limits = replace(limits, linearization=1)
    for request in model.requests:
        request.minimize_ties(search)
    found = model.placed(search)
    return Outcome(found if search.proven else _best(problem, [found, start]), search.proven, bounds)


def _can_be_built(problem: Problem, limits: Limits) -> bool:
    """Whether there is time to build the full model."""
    return limits.left > BUILD_SECONDS * sum(len(demand.parts) for demand in problem.demands)


def _reached(problem: Problem, taken: tuple[int, ...] | None, least: Sequence[Metrics]) -> Metrics:
    """The first metrics, as far as the allocation has values that are proven to be the least."""
    if taken is None:
        return {}
    return reached(problem.prepared.scorer.joint(problem.free, problem.requests, taken), least)


def _best(problem: Problem, candidates: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """The best candidate that keeps all rules."""
    scorer, free, requests = problem.prepared.scorer, problem.free, problem.requests
    valid = [
        taken
        for taken in candidates
        if taken is not None and not any(violations(scorer, free, requests, problem.constraints, taken))
    ]
    return min(valid, key=lambda taken: tuple(scorer.joint(free, requests, taken).values()), default=None)
