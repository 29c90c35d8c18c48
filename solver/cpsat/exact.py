"""The exact engine's front: one request by tables, several by the joint model."""

from collections.abc import Sequence

from solver.cpsat.search import Limits
from solver.cpsat.single import Outcome, solve_single
from solver.problem import Problem


def solve_exact(problem: Problem, limits: Limits, hint: Sequence[int] | None = None) -> Outcome:
    """The best allocation of the problem, as far as the limits allow; ``hint`` is a valid one to start from."""
    if len(problem.demands) == 1:
        return solve_single(problem, limits, None if hint is None else hint[0])
    raise NotImplementedError
