"""``solve``: checks its arguments, tries the methods, judges their answers, and returns the result."""

import time
from collections.abc import Iterable, Sequence

from models import Constraint, DefectError, Request, Result, Topology
from models.allocation import Engine
from solver.answer import Candidate, best_of, checked, nothing, placed, unproven
from solver.explain import explain
from solver.feasibility import Feasibility
from solver.inputs import check_numbers, claim_of, free_cpus, prepared_of
from solver.limits import Limits
from solver.methods import METHODS, EngineChoice
from solver.outcome import Outcome
from solver.problem import Prepared, Problem

SHORTEST = 0.002
"""Seconds below which an exact method is not started: it could not finish in time."""

HURRIED = "there was no time to make the clash minimal and to look for the nearest request"


def solve(
    topology: Topology | Prepared,
    requests: Request | Sequence[Request] | None = None,
    *,
    constraints: Sequence[Constraint] | None = None,
    free: Iterable[int] | str | None = None,
    engine: EngineChoice = "auto",
    time_limit: float = 1.0,
    workers: int = 1,
    seed: int = 0,
) -> Result:
    """Choose CPUs for the requests, together.

    ``requests`` and ``constraints`` default to those of the topology document; ``free`` to its online CPUs less
    reserved and held ones (giving ``free`` for a document with held CPUs is an error; reserved CPUs are never
    given). ``time_limit`` is in seconds and starts after imports. Pass a ``Prepared`` machine to solve many
    times. Raises ``BadInputError``; ``DefectError`` when an answer fails its own check, so that a wrong one
    never leaves. That nothing can be placed is a ``Result`` with status ``infeasible``.
    """
    check_numbers(engine, time_limit, workers, seed)
    prepared = prepared_of(topology)
    claim, available = claim_of(prepared.topology, requests, constraints), free_cpus(prepared, free)
    if engine != "greedy":
        import solver.dp.optimum  # noqa: F401 - loads numpy, before the clock starts
    start = time.perf_counter()
    problem = Problem.of(prepared, available, claim.requests, claim.constraints)
    built = time.perf_counter()
    limits = Limits(start + time_limit, workers, seed)
    result = _solve(problem, engine, limits, time_limit)
    solved = time.perf_counter() - limits.paused_for
    times = {"build_ms": round(1000 * (built - start), 3), "solve_ms": round(1000 * (solved - built), 3)}
    return result.model_copy(update=times)


def _solve(problem: Problem, engine: EngineChoice, limits: Limits, time_limit: float) -> Result:
    """Try the engine's methods, each from the best answer so far, until one of them proves something."""
    answers: list[Candidate] = []
    searched: Outcome | None = None
    for method in METHODS[engine]:
        if method.timed and limits.left < SHORTEST:
            break
        found = method.run(problem, limits, best_of(problem, answers).taken if answers else None)
        if found is None:
            continue
        answer = checked(problem, method.engine, found.taken)
        if found.proven:
            return _proven(problem, engine, limits, method.engine, answer, answers)
        searched = found if method.timed else None
        answers += [answer] if answer else []
    if not answers:
        return nothing("cpsat" if searched else "greedy" if engine == "auto" else engine)
    late = "" if engine == "greedy" else _late(time_limit, searched is not None)
    return unproven(problem, answers, searched.bounds if searched else {}, late)


def _late(time_limit: float, searched: bool) -> str:
    """Why there is no proof."""
    if searched:
        return f"not proven optimal in {time_limit:g} s"
    return f"a time limit of {time_limit:g} s left no time for an exact method: this is the greedy answer"


def _proven(
    problem: Problem,
    engine: EngineChoice,
    limits: Limits,
    by: Engine,
    answer: Candidate | None,
    others: Sequence[Candidate],
) -> Result:
    """The result of a proof by one method. Raises ``DefectError`` where another contradicts it."""
    if answer is None:
        if others:
            raise DefectError(f"{by} called a problem infeasible for which {others[0]} was found")
        return _infeasible(problem, engine, limits, by)
    if (best := best_of(problem, [answer, *others])) is not answer:
        raise DefectError(f"{answer} was called optimal, but {best} is better")
    return placed(problem, "optimal", answer, others)


def _infeasible(problem: Problem, engine: EngineChoice, limits: Limits, by: Engine) -> Result:
    """The clash. A search's word that there is one stands only if no other witness finds an allocation."""
    oracle = Feasibility(problem, limits, search=engine in ("auto", "cpsat"))
    if by == "cpsat" and oracle.contradicts_infeasible():
        raise DefectError(
            "CP-SAT called a problem infeasible, but greedy, counting or a second search can place it"
        )
    clash, complete = explain(problem, oracle.can_be_met)
    return Result(status="infeasible", engine=by, infeasible=clash, notes=() if complete else (HURRIED,))
