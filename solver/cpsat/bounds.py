"""Requests one at a time: what each would get alone bounds what all can get together, and is a place to start.

Which metrics of a first allocation these bounds and those of the relaxation prove.
"""

from collections.abc import Callable, Mapping, Sequence

from models import Metrics
from solver.cpsat.objectives import summed
from solver.outcome import Outcome
from solver.problem import Problem

MOST_REQUESTS = 16
"""With more requests than this, solving them one at a time costs more than it tells."""

Single = Callable[[Problem], Outcome]
"""Solves a problem of one request."""


def bounds_alone(problem: Problem, single: Single) -> Metrics:
    """The least values of the metrics that are summed, by name: what each request needs on all free CPUs.

    The sum of lexicographic minima is the minimum of the sums. Empty where a request could not be settled.
    """
    own = [_metrics_alone(problem, position, single) for position in range(len(problem.demands))]
    known = [metrics for metrics in own if metrics is not None]
    if len(known) < len(own):
        return {}
    return summed(problem.requests, known, "span", "core")


def _metrics_alone(problem: Problem, position: int, single: Single) -> Metrics | None:
    request = problem.requests[position]
    outcome = single(Problem.of(problem.prepared, problem.free, [request]))
    if outcome.taken is None or not outcome.proven:
        return None
    return problem.prepared.scorer.metrics(problem.free, request, outcome.taken[0])


def one_by_one(problem: Problem, single: Single) -> tuple[int, ...] | None:
    """Give each request in turn its best CPUs of those left. ``None`` if one gets nothing."""
    left, taken = problem.free, list[int]()
    for request in problem.requests:
        outcome = single(Problem.of(problem.prepared, left, [request]))
        if outcome.taken is None:
            return None
        taken += outcome.taken
        left &= ~outcome.taken[0]
    return tuple(taken)


def reached(metrics: Metrics, least: Sequence[Metrics]) -> Metrics:
    """The first metrics, as far as they have values that one of the bounds says are the least."""
    found: Metrics = {}
    for name, value in metrics.items():
        if all(bound.get(name) != value for bound in least):
            break
        found[name] = value
    return found


def still_valid(bounds: Mapping[str, int | None], open_metrics: Sequence[str]) -> Metrics:
    """The bounds to start from: a bound holds only while all metrics before its own are at theirs.

    So of the metrics that are open, in their order, the first keeps its bound.
    """
    return {name: bounds.get(name) or 0 for name in open_metrics[:1]}
