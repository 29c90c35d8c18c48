"""From masks to results: checked by ``verify``, scored, and with notes for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from models import Allocation, Metrics, Request, Result, from_mask
from models.allocation import Engine
from solver.problem import Problem
from solver.verify import verify
from topologies.graph import Machine

SHORTFALLS = {
    "unevenness": "the split is not even: shares differ by {} CPUs more than an even split allows",
    "floor_shortfall": "NUMA nodes missing to reach numa_min: {}",
    "outside_near": "CPUs that are not near: {}",
}
"""Preferences that an answer may not fulfil, in words."""


@dataclass(frozen=True)
class Candidate:
    """A checked allocation: who found it, a mask per request, and its metrics."""

    engine: Engine
    taken: tuple[int, ...]
    metrics: Metrics


def checked(problem: Problem, engine: Engine, taken: tuple[int, ...] | None) -> Candidate | None:
    """The allocation as an answer. Raises ``DefectError`` when ``verify`` finds fault with it."""
    if taken is None:
        return None
    metrics = verify(problem.prepared.scorer, problem.free, problem.requests, problem.constraints, taken)
    return Candidate(engine, taken, metrics)


def best_of(problem: Problem, answers: Sequence[Candidate]) -> Candidate:
    """The one with the least metrics; of several, the first by the tie rule, or in the sequence."""
    least = min(tuple(answer.metrics.values()) for answer in answers)
    best = [answer for answer in answers if tuple(answer.metrics.values()) == least]
    if len({answer.taken for answer in best}) == 1:
        return best[0]
    return min(best, key=lambda answer: list(map(problem.prepared.scorer.tie_key, answer.taken)))


def placed(
    problem: Problem, status: Literal["optimal", "feasible"], answer: Candidate, others: Sequence[Candidate]
) -> Result:
    """The result that gives the answer; where greedy is among the others, with its metrics beside it."""
    greedy = next((other for other in (answer, *others) if other.engine == "greedy"), None)
    beside = [None] * len(answer.taken) if greedy is None else _each(problem, greedy)
    allocations = tuple(
        Allocation(
            request=request.name,
            cpuset=from_mask(mask),
            mems=_mems(problem.machine, mask),
            policy=request.policy,
            metrics=own,
            greedy=greedys,
        )
        for request, mask, own, greedys in zip(
            problem.requests, answer.taken, _each(problem, answer), beside, strict=True
        )
    )
    found = answer.metrics
    notes = [text.format(found[name]) for name, text in SHORTFALLS.items() if found.get(name)]
    notes += [note for request in problem.requests for note in _idle_strictness(request)]
    return Result(status=status, engine=answer.engine, allocations=allocations, metrics=found, notes=tuple(notes))


def unproven(
    problem: Problem, answers: Sequence[Candidate], bounds: Mapping[str, int | None], late: str
) -> Result:
    """The result that gives the best of the answers, with what is known of each metric and why no more is."""
    best = best_of(problem, answers)
    result = placed(problem, "feasible", best, answers)
    if bounds and best.engine == "greedy":
        late += ": CP-SAT found nothing better than the greedy answer"
    notes = (late, *result.notes) if late else result.notes
    return result.model_copy(update={"bounds": dict.fromkeys(best.metrics) | dict(bounds), "notes": notes})


NOTHING: dict[Engine, str] = {
    "greedy": "greedy found no allocation; that does not prove that there is none",
    "dp": "dynamic programming does not settle this: it is for one request at a time, where domains nest",
    "cpsat": "CP-SAT found nothing in time",
}


def nothing(engine: Engine) -> Result:
    """The result where neither an allocation nor a proof was found."""
    return Result(status="unknown", engine=engine, notes=(NOTHING[engine],))


def _each(problem: Problem, answer: Candidate) -> Sequence[Metrics]:
    """Metrics of each request; those of all together, where there is but one."""
    if len(answer.taken) == 1:
        return [answer.metrics]
    scorer = problem.prepared.scorer
    return [scorer.metrics(problem.free, *each) for each in zip(problem.requests, answer.taken, strict=True)]


def _idle_strictness(request: Request) -> list[str]:
    """Preferences named in ``strict`` that the request does not have."""
    named = request.strict if isinstance(request.strict, frozenset) else frozenset()
    idle = sorted(preference for preference in named if not request.is_strict(preference))
    return [
        f"{request.name}: strict {preference} has no effect, as the request does not ask for it"
        for preference in idle
    ]


def _mems(machine: Machine, mask: int) -> frozenset[int]:
    return frozenset(node.id for node in machine.numa_nodes if node.mask & mask and isinstance(node.id, int))
