"""``solve``: poses the problem, asks the engines, judges their answers, and says what came out."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from models import (
    Allocation,
    BadInputError,
    Claim,
    Constraint,
    DefectError,
    Metrics,
    Request,
    Result,
    Topology,
    format_cpuset,
    from_mask,
    to_mask,
)
from models.allocation import Engine
from solver.counting import counted_out
from solver.explain import explain
from solver.greedy.allocate import allocate
from solver.problem import Prepared, Problem, pose
from solver.verify import verify

if TYPE_CHECKING:
    from solver.cpsat.outcome import Outcome

EngineChoice = Literal["auto", "cpsat", "greedy"]

SECOND_LOOK = 0.05
"""Seconds beyond the time limit that the explanation of a clash between requests may take."""

SHORTEST_SEARCH = 0.002
"""Seconds below which CP-SAT is not started: it could not finish, and the greedy answer is there already."""


def solve(
    topology: Topology | Prepared,
    requests: Request | Sequence[Request] | None = None,
    *,
    constraints: Sequence[Constraint] | None = None,
    free: Iterable[int] | None = None,
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
    prepared = topology if isinstance(topology, Prepared) else Prepared(topology)
    claim = _claim(prepared.topology, requests, constraints)
    available = _free(prepared.topology, free)
    if not 0 <= time_limit < float("inf") or workers < 1:
        raise BadInputError("time_limit must be 0 or more seconds and workers at least 1")
    if engine != "greedy":
        import solver.cpsat.exact  # noqa: F401 - costs a second the first time, which is nobody's time limit
    start = time.perf_counter()
    problem = pose(prepared, available, claim.requests, claim.constraints)
    run = _Run(problem, engine, start, time_limit, workers, seed)
    build_ms = (time.perf_counter() - start) * 1000
    result = run.result()
    solve_ms = (time.perf_counter() - start) * 1000 - build_ms
    return result.model_copy(update={"build_ms": round(build_ms, 3), "solve_ms": round(solve_ms, 3)})


def _claim(
    topology: Topology, requests: Request | Sequence[Request] | None, constraints: Sequence[Constraint] | None
) -> Claim:
    wanted = topology.requests if requests is None else requests
    wanted = (wanted,) if isinstance(wanted, Request) else tuple(wanted)
    rules = topology.constraints if constraints is None and requests is None else constraints or ()
    if not wanted:
        raise BadInputError("no request: name how many CPUs are wanted", place="requests")
    try:
        return Claim(requests=wanted, constraints=tuple(rules))
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None


def _free(topology: Topology, free: Iterable[int] | None) -> int:
    if free is None:
        return to_mask(topology.free)
    if topology.held:
        raise BadInputError("give either free CPUs or held ones, not both", place="free")
    given = frozenset(free)
    if missing := given - topology.online:
        raise BadInputError(f"CPUs {format_cpuset(missing)} are not online", place="free")
    return to_mask(given & topology.allocatable)


@dataclass(frozen=True)
class _Answer:
    """A checked allocation: masks, its metrics, and who found it."""

    engine: Engine
    taken: tuple[int, ...]
    metrics: Metrics


@dataclass(frozen=True)
class _Run:
    """One call of ``solve``: what the engines are asked, in which order, and what is made of it."""

    problem: Problem
    engine: EngineChoice
    start: float
    time_limit: float
    workers: int
    seed: int

    def result(self) -> Result:
        greedy = None if self.engine == "cpsat" else self._answer("greedy", allocate(self.problem))
        if greedy is None and self.engine != "cpsat" and counted_out(self.problem.demands):
            return self._infeasible("greedy")
        outcome = self._exact(greedy)
        if outcome is None:
            return self._without_proof(greedy)
        exact = self._answer("cpsat", outcome.taken)
        if exact is None and greedy is None:
            return self._infeasible("cpsat") if outcome.proven else Result(status="unknown", engine="cpsat")
        return self._best(exact, greedy, outcome)

    def _exact(self, greedy: _Answer | None) -> "Outcome | None":
        if self.engine == "greedy" or self.start + self.time_limit - time.perf_counter() < SHORTEST_SEARCH:
            return None
        from solver.cpsat.exact import solve_exact
        from solver.cpsat.search import Limits

        limits = Limits(self.start + self.time_limit, self.workers, self.seed)
        return solve_exact(self.problem, limits, None if greedy is None else greedy.taken)

    def _answer(self, engine: Engine, taken: tuple[int, ...] | None) -> _Answer | None:
        """The allocation once ``verify`` has passed it."""
        if taken is None:
            return None
        problem, scorer = self.problem, self.problem.prepared.scorer
        metrics = scorer.joint(problem.free, problem.requests, taken)
        verify(scorer, problem.free, problem.requests, problem.constraints, taken, metrics)
        return _Answer(engine, taken, metrics)

    def _without_proof(self, greedy: _Answer | None) -> Result:
        if greedy is None:
            return Result(status="unknown", engine="greedy", notes=("nothing was found in time",))
        late = f"a time limit of {self.time_limit:g} s left no time for CP-SAT: this is the greedy answer"
        notes = () if self.engine == "greedy" else (late,)
        unknown = dict.fromkeys(greedy.metrics)
        return self._placed("feasible", greedy, greedy).model_copy(
            update={"bounds": unknown, "notes": (*notes, *self._notes(greedy))}
        )

    def _best(self, exact: _Answer | None, greedy: _Answer | None, outcome: "Outcome") -> Result:
        best = min((each for each in (exact, greedy) if each is not None), key=self._rank)
        if not outcome.proven:
            result = self._placed("feasible", best, greedy)
            return result.model_copy(update={"bounds": dict(outcome.bounds)})
        if best is not exact:
            raise DefectError(f"CP-SAT called {exact} optimal, but greedy found {greedy}")
        return self._placed("optimal", best, greedy)

    def _rank(self, answer: _Answer) -> tuple[object, ...]:
        scorer = self.problem.prepared.scorer
        return (tuple(answer.metrics.values()), *map(scorer.tie_key, answer.taken))

    def _placed(self, status: Literal["optimal", "feasible"], answer: _Answer, greedy: _Answer | None) -> Result:
        problem, scorer = self.problem, self.problem.prepared.scorer
        greedy_masks: Sequence[int | None] = [None] * len(answer.taken) if greedy is None else greedy.taken
        allocations = tuple(
            Allocation(
                request=request.name,
                cpuset=from_mask(mask),
                mems=_mems(problem.prepared.topology, mask),
                policy=request.policy,
                metrics=scorer.metrics(problem.free, request, mask),
                greedy=None if other is None else scorer.metrics(problem.free, request, other),
            )
            for request, mask, other in zip(problem.requests, answer.taken, greedy_masks, strict=True)
        )
        return Result(
            status=status,
            engine=answer.engine,
            allocations=allocations,
            metrics=answer.metrics,
            notes=self._notes(answer),
        )

    def _notes(self, answer: _Answer) -> tuple[str, ...]:
        """What a preference could not be given, in words."""
        said = {
            "unevenness": "no even split was found: shares differ by {} CPUs more than they need to",
            "floor_shortfall": "{} NUMA nodes fewer than numa_min asks for",
            "outside_near": "{} CPUs are not near",
        }
        return tuple(text.format(answer.metrics[name]) for name, text in said.items() if answer.metrics.get(name))

    def _infeasible(self, engine: Engine) -> Result:
        if engine == "cpsat" and self._can_be_met(self.problem.requests, self.problem.constraints):
            raise DefectError("CP-SAT called a problem infeasible that greedy, counting or a second look does not")
        return Result(status="infeasible", engine=engine, infeasible=explain(self.problem, self._can_be_met))

    def _can_be_met(self, requests: Sequence[Request], constraints: Sequence[Constraint]) -> bool | None:
        """Whether these wishes have an allocation: by counting, by example, by CP-SAT without an objective."""
        deadline = self.start + self.time_limit + SECOND_LOOK
        if len(requests) > 1 and time.perf_counter() > deadline:
            return None
        problem = pose(self.problem.prepared, self.problem.free, requests, constraints)
        if counted_out(problem.demands):
            return False
        if len(requests) == 1 or allocate(problem) is not None:
            return True
        if self.engine == "greedy":
            return None
        from solver.cpsat.exact import is_feasible
        from solver.cpsat.search import Limits

        # Infeasible has been reported wrongly by the solver, so this look takes another path through it.
        return is_feasible(problem, Limits(deadline, presolve=False, linearization=1))


def _mems(topology: Topology, mask: int) -> frozenset[int]:
    return frozenset(cpu.numa for cpu in topology.cpus if mask >> cpu.cpu & 1 and cpu.numa is not None)
