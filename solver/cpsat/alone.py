"""Requests one at a time: what each would get alone bounds what all can get together, and is a place to start."""

from collections.abc import Callable, Sequence

from models import Metrics
from solver.cpsat.expressions import summed
from solver.outcome import Outcome
from solver.problem import Problem, pose

SUMMED_SLOTS = 9
"""Slots that are sums over requests; those after them look at all allocations together."""

MOST_REQUESTS = 16
"""With more requests than this, solving them one at a time costs more than it tells."""

Single = Callable[[Problem], Outcome]
"""Solves a problem of one request."""


def bounds_alone(problem: Problem, single: Single) -> Metrics:
    """The least values of the first slots, by name: sums of what each request needs on all free CPUs.

    The sum of lexicographic minima is the minimum of the sums. Empty where a request could not be settled.
    """
    own = [_metrics_alone(problem, position, single) for position in range(len(problem.demands))]
    known = [metrics for metrics in own if metrics is not None]
    if len(known) < len(own):
        return {}
    return summed(problem.requests, known, SUMMED_SLOTS)


def _metrics_alone(problem: Problem, position: int, single: Single) -> Metrics | None:
    request = problem.requests[position]
    outcome = single(pose(problem.prepared, problem.free, [request]))
    if outcome.taken is None or not outcome.proven:
        return None
    return problem.prepared.scorer.metrics(problem.free, request, outcome.taken[0])


def one_by_one(problem: Problem, single: Single) -> tuple[int, ...] | None:
    """Each request in turn gets its best of what is left; ``None`` when one gets nothing."""
    left, taken = problem.free, list[int]()
    for request in problem.requests:
        outcome = single(pose(problem.prepared, left, [request]))
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
