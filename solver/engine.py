"""``solve``: poses the problem, asks the engines, judges their answers, and says what came out."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import ValidationError

from models import (
    BadInputError,
    Claim,
    Constraint,
    DefectError,
    Request,
    Result,
    Topology,
    format_cpuset,
    from_mask,
    read_cpuset,
    to_mask,
)
from models.allocation import Engine
from solver.answer import Answer, best_of, checked, placed
from solver.counting import counted_out
from solver.explain import OutOfTime, explain
from solver.greedy.allocate import allocate
from solver.outcome import Outcome
from solver.problem import Prepared, Problem, pose

if TYPE_CHECKING:
    from solver.cpsat.search import Limits

EngineChoice = Literal["auto", "cpsat", "greedy"]

SECOND_LOOK = 0.05
"""Seconds beyond the time limit that the explanation of a clash between requests may take."""

MOST_WORKERS = 1024

SHORTEST_SEARCH = 0.002
"""Seconds below which CP-SAT is not started: it could not finish, and the greedy answer is there already."""


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
    if engine not in get_args(EngineChoice):
        raise BadInputError(f"{engine!r} is none of {', '.join(get_args(EngineChoice))}", place="engine")
    if not isinstance(topology, Topology | Prepared):
        raise BadInputError("is neither a Topology nor a Prepared machine", place="topology")
    prepared = topology if isinstance(topology, Prepared) else Prepared(topology)
    claim = _claim(prepared.topology, requests, constraints)
    available = _free(prepared, free)
    if not isinstance(time_limit, int | float) or not 0 <= time_limit < float("inf"):
        raise BadInputError(f"{time_limit} is not a number of seconds, 0 or more", place="time_limit")
    for name, value, least, most in (("workers", workers, 1, MOST_WORKERS), ("seed", seed, 0, 2**31 - 1)):
        if type(value) is not int or not least <= value <= most:
            raise BadInputError(f"{value!r} is not a whole number from {least} to {most}", place=name)
    if engine != "greedy":
        import solver.tables.optimum  # noqa: F401 - loads numpy, before the clock starts
    start = time.perf_counter()
    problem = pose(prepared, available, claim.requests, claim.constraints)
    built = time.perf_counter()
    run = _Run(problem, engine, start, time_limit, workers, seed)
    result = run.result()
    solved = time.perf_counter() - run.importing
    times = {"build_ms": round(1000 * (built - start), 3), "solve_ms": round(1000 * (solved - built), 3)}
    return result.model_copy(update=times)


def _claim(
    topology: Topology, requests: Request | Sequence[Request] | None, constraints: Sequence[Constraint] | None
) -> Claim:
    wanted = topology.requests if requests is None else requests
    wanted = (wanted,) if isinstance(wanted, Request) else wanted
    rules = topology.constraints if constraints is None and requests is None else constraints or ()
    if not wanted:
        raise BadInputError("no request: name how many CPUs are wanted", place="requests")
    try:
        return Claim.model_validate({"requests": wanted, "constraints": rules})
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None


def _free(prepared: Prepared, free: Iterable[int] | str | None) -> int:
    if free is None:
        return to_mask(prepared.topology.free)
    if prepared.topology.held:
        raise BadInputError("give either free CPUs or held ones, not both", place="free")
    try:
        given = to_mask(read_cpuset(free if isinstance(free, str | bytes) else frozenset(free)))
    except (TypeError, ValueError) as error:
        raise BadInputError(str(error), place="free") from None
    if missing := given & ~prepared.machine.online:
        raise BadInputError(f"CPUs {format_cpuset(from_mask(missing))} are not online", place="free")
    return given & prepared.scorer.allocatable


class _Run:
    """One call of ``solve``: what the engines are asked, in which order, and what is made of it.

    ``importing``: seconds spent on loading OR-Tools, which are nobody's time limit.
    """

    def __init__(
        self, problem: Problem, engine: EngineChoice, start: float, time_limit: float, workers: int, seed: int
    ) -> None:
        self.problem, self.engine, self.time_limit = problem, engine, time_limit
        self._deadline, self._workers, self._seed = start + time_limit, workers, seed
        self.importing = 0.0

    def result(self) -> Result:
        greedy = None if self.engine == "cpsat" else checked(self.problem, "greedy", allocate(self.problem))
        if greedy is None and self.engine != "cpsat" and counted_out(self.problem.demands):
            return self._infeasible("greedy")
        if self.engine == "greedy" or self._deadline - time.perf_counter() < SHORTEST_SEARCH:
            return self._without_search(greedy)
        outcome = self._by_tables() or self._by_search(greedy)
        exact = checked(self.problem, "cpsat", outcome.taken)
        if exact is None and greedy is None:
            return self._infeasible("cpsat") if outcome.proven else _nothing("cpsat")
        return self._best(exact, greedy, outcome)

    def _by_tables(self) -> Outcome | None:
        """The optimum of a single request where exact tables have it; the engine ``cpsat`` goes without them."""
        if self.engine == "cpsat" or len(self.problem.demands) > 1:
            return None
        return _by_tables(self.problem)

    def _by_search(self, greedy: Answer | None) -> Outcome:
        limits = self._limits(0)
        from solver.cpsat.exact import solve_exact

        single = None if self.engine == "cpsat" else partial(_single, limits=limits)
        return solve_exact(self.problem, limits, None if greedy is None else greedy.taken, single)

    def _limits(self, grace: float) -> "Limits":
        """What is left of the time, plus ``grace`` seconds, not counting the import that this may cost."""
        before = time.perf_counter()
        import solver.cpsat.exact  # noqa: F401
        from solver.cpsat.search import Limits

        self.importing += time.perf_counter() - before
        return Limits(self._deadline + self.importing + grace, self._workers, self._seed)

    def _without_search(self, greedy: Answer | None) -> Result:
        if greedy is None:
            return _nothing("cpsat" if self.engine == "cpsat" else "greedy")
        late = f"a time limit of {self.time_limit:g} s left no time for CP-SAT: this is the greedy answer"
        notes = () if self.engine == "greedy" else (late,)
        return self._unproven(greedy, greedy, {}, notes)

    def _unproven(
        self,
        best: Answer,
        greedy: Answer | None,
        bounds: Mapping[str, int | None],
        notes: tuple[str, ...],
    ) -> Result:
        result = placed(self.problem, "feasible", best, greedy)
        known = dict.fromkeys(best.metrics) | dict(bounds)
        return result.model_copy(update={"bounds": known, "notes": (*notes, *result.notes)})

    def _best(self, exact: Answer | None, greedy: Answer | None, outcome: Outcome) -> Result:
        answers = [answer for answer in (exact, greedy) if answer is not None]
        best = best_of(self.problem, answers)
        if not outcome.proven:
            late = f"not proven optimal in {self.time_limit:g} s"
            if best is greedy:
                late += ": CP-SAT found nothing better than the greedy answer"
            return self._unproven(best, greedy, outcome.bounds, (late,))
        if best is not exact:
            raise DefectError(f"{exact} was called optimal, but greedy found {greedy}")
        return placed(self.problem, "optimal", best, greedy).model_copy(update={"proof": outcome.proof})

    def _infeasible(self, engine: Engine) -> Result:
        if engine == "cpsat" and self._is_contradicted():
            raise DefectError("CP-SAT called a problem infeasible that greedy, counting or a second look does not")
        self._deadline = max(self._deadline, time.perf_counter() - self.importing)
        clash, complete = explain(self.problem, self._can_be_met)
        notes = (
            ()
            if complete
            else ("there was no time to make the clash minimal and to look for the nearest request",)
        )
        return Result(status="infeasible", engine=engine, infeasible=clash, notes=notes)

    def _is_contradicted(self) -> bool:
        try:
            return bool(self._can_be_met(self.problem.requests, self.problem.constraints))
        except OutOfTime:
            return False

    def _can_be_met(self, requests: Sequence[Request], constraints: Sequence[Constraint]) -> bool | None:
        """Whether these wishes have an allocation: by counting, by example, by CP-SAT without an objective."""
        if len(requests) > 1 and time.perf_counter() > self._deadline + self.importing + SECOND_LOOK:
            raise OutOfTime
        problem = pose(self.problem.prepared, self.problem.free, requests, constraints)
        if counted_out(problem.demands):
            return False
        if len(requests) == 1 or allocate(problem) is not None:
            return True
        if self.engine == "greedy":
            return None
        limits = self._limits(SECOND_LOOK)
        from solver.cpsat.exact import is_feasible

        return is_feasible(problem, limits)


def _by_tables(problem: Problem) -> Outcome | None:
    """The optimum of a problem of one request, where tables settle it."""
    from solver.tables.optimum import optimum

    mask = optimum(problem, problem.demands[0])
    return None if mask is None else Outcome((mask,), proven=True, proof="tables")


def _single(problem: Problem, limits: "Limits") -> Outcome:
    """One request of several, by tables or else by search."""
    from solver.cpsat.single import solve_single

    return _by_tables(problem) or solve_single(problem, limits)


def _nothing(engine: Engine) -> Result:
    why = "CP-SAT found nothing in time" if engine == "cpsat" else "greedy found nothing, which proves nothing"
    return Result(status="unknown", engine=engine, notes=(why,))
