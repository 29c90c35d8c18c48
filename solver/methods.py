"""The methods that ``solve`` tries one after the other, all of one signature.

A method that does not apply, or found nothing and proved nothing, returns ``None``. ``start`` is the best
allocation so far, a mask per request.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from models.allocation import Engine
from solver.counting import counted_out
from solver.greedy.allocate import allocate
from solver.limits import Limits
from solver.outcome import Outcome
from solver.problem import Problem

if TYPE_CHECKING:
    from solver.cpsat.bounds import Single

EngineChoice = Literal["auto", "greedy", "dp", "cpsat"]

Hint = tuple[int, ...] | None
Run = Callable[[Problem, Limits, Hint], Outcome | None]


@dataclass(frozen=True)
class Method:
    """A way to place requests. ``engine``: its name in answers; ``timed``: not begun when the time is over."""

    engine: Engine
    run: Run
    timed: bool = True


def greedy(problem: Problem, limits: Limits, start: Hint) -> Outcome | None:
    """The kubelet's algorithm, request by request."""
    taken = allocate(problem)
    return None if taken is None else Outcome(taken, proven=False)


def count(problem: Problem, limits: Limits, start: Hint) -> Outcome | None:
    """Proof by counting that nothing can be placed."""
    return Outcome(None, proven=True) if start is None and counted_out(problem.demands) else None


def dp(problem: Problem, limits: Limits, start: Hint = None) -> Outcome | None:
    """One request by dynamic programming, where domains nest."""
    from solver.dp.optimum import optimum

    mask = optimum(problem, problem.demands[0]) if len(problem.demands) == 1 else None
    return None if mask is None else Outcome((mask,), proven=True)


def cpsat(problem: Problem, limits: Limits, start: Hint) -> Outcome:
    """CP-SAT alone. The time of loading OR-Tools does not count."""
    return _search(problem, limits, start, None)


def cpsat_with_dp(problem: Problem, limits: Limits, start: Hint) -> Outcome:
    """CP-SAT, which solves the requests of a batch one at a time by dynamic programming where that applies."""
    return _search(problem, limits, start, partial(_dp_or_cpsat, limits=limits))


def _search(problem: Problem, limits: Limits, start: Hint, single: "Single | None") -> Outcome:
    with limits.paused():
        from solver.cpsat import batch

    return batch.solve_exact(problem, limits, start, single)


def _dp_or_cpsat(problem: Problem, limits: Limits) -> Outcome:
    from solver.cpsat.single import solve_single

    return dp(problem, limits) or solve_single(problem, limits)


GREEDY, COUNT, DP = Method("greedy", greedy, timed=False), Method("dp", count, timed=False), Method("dp", dp)

METHODS: dict[EngineChoice, tuple[Method, ...]] = {
    "auto": (GREEDY, COUNT, DP, Method("cpsat", cpsat_with_dp)),
    "greedy": (GREEDY, COUNT),
    "dp": (COUNT, DP),
    "cpsat": (Method("cpsat", cpsat),),
}
"""The methods of each engine, in the order in which they are tried."""
