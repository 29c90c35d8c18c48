"""Several requests together, exactly: bounds and a start from the relaxation, then the model of every core."""

from collections.abc import Mapping, Sequence
from functools import partial

from models import Metrics
from solver.cpsat.batch_model import BatchModel
from solver.cpsat.bounds import MOST_REQUESTS, Single, bounds_alone, one_by_one, reached, still_valid
from solver.cpsat.relaxation import Relaxation
from solver.cpsat.search import FEASIBILITY, Objective, Search, Tuning
from solver.cpsat.single import solve_single
from solver.limits import Limits
from solver.outcome import Outcome
from solver.problem import Problem
from solver.verify import violations

BUILD_SECONDS = 6e-5
"""What a core adds for each request to the time of building the full model, which nothing can interrupt."""


def solve_exact(
    problem: Problem, limits: Limits, hint: tuple[int, ...] | None = None, single: Single | None = None
) -> Outcome:
    """The best allocation of one or several requests, as far as the limits allow; ``hint`` is a valid start.

    ``single`` solves the requests of a batch one at a time, for bounds and a start; by default CP-SAT.
    """
    if not all(demand.parts for demand in problem.demands):
        return Outcome(None, proven=True)
    if len(problem.demands) == 1:
        return solve_single(problem, limits, None if hint is None else hint[0])
    return solve_batch(problem, limits, hint, single or partial(solve_single, limits=limits))


def solve_batch(problem: Problem, limits: Limits, hint: tuple[int, ...] | None, single: Single) -> Outcome:
    """The best allocations of several requests, by all metrics and the tie rule."""
    start, least = hint, Metrics()
    if len(problem.demands) <= MOST_REQUESTS:
        least = bounds_alone(problem, single)
        start = _best(problem, [hint, one_by_one(problem, single)])
    relaxation = Relaxation(problem)
    search = Search(relaxation.model, limits, Tuning(presolve=True, linearization=1))
    if start is not None:
        search.extend_hint(relaxation.hint(start))
    search.minimize([Objective(name, expr, least.get(name, 0)) for name, expr in relaxation.metrics.items()])
    if search.infeasible:
        return Outcome(None, proven=True)
    start = _best(problem, [start, relaxation.realize(search) if search.solved else None])
    settled = _reached(problem, start, [least, search.settled])
    if not _can_be_built(problem, limits):
        return Outcome(start, False, {**search.bounds, **settled})
    return finish(problem, limits, start, settled, search.bounds)


def is_feasible(problem: Problem, limits: Limits) -> bool | None:
    """Whether the problem has any allocation, by models without an objective; ``None`` if time ran out."""
    if not all(demand.parts for demand in problem.demands):
        return False
    relaxation = Relaxation(problem)
    first = Search(relaxation.model, limits, Tuning())
    first.minimize([FEASIBILITY])
    if first.infeasible:
        return False
    if first.solved and _best(problem, [relaxation.realize(first)]) is not None:
        return True
    if not _can_be_built(problem, limits):
        return None
    search = Search(BatchModel(problem).model, limits, Tuning())
    search.minimize([FEASIBILITY])
    return search.solved or (False if search.infeasible else None)


def finish(
    problem: Problem,
    limits: Limits,
    start: tuple[int, ...] | None,
    settled: Metrics,
    bounds: Mapping[str, int | None],
) -> Outcome:
    """Solve the full model, from an allocation to start with and with the first metrics settled.

    ``bounds`` are those of the relaxation, each proven under the condition that the metrics before are at theirs.
    """
    model = BatchModel(problem)
    search = Search(model.model, limits, Tuning())
    if start is not None:
        search.extend_hint(model.hint(start))
    for name, value in settled.items():
        search.settle(Objective(name, model.metrics[name]), value)
    rest = [name for name in model.metrics if name not in settled]
    least = still_valid(bounds, rest)
    search.minimize([Objective(name, model.metrics[name], least.get(name, 0)) for name in rest])
    reached_bounds = dict(search.bounds)
    if search.infeasible and start is None:
        return Outcome(None, proven=True)
    if not search.solved:
        return Outcome(start, False, reached_bounds)
    search.tuning = Tuning(linearization=1)
    model.minimize_ties(search)
    found = model.placed(search)
    return Outcome(found if search.proven else _best(problem, [found, start]), search.proven, reached_bounds)


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
