"""What an optimum costs in time: build, solve and total, engine beside engine, along one axis after the other.

For a shared and noisy machine: engines take turns on each instance, each after a run that warms up; an instance
counts with the median of its runs; empty CP-SAT solves run in between, and ratios are to those. The garbage
collector rests while the clock runs.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from benchmarks.instances import Instance, instances, prepared
from benchmarks.plain import solve_plain
from benchmarks.speed_points import Point
from benchmarks.timing import quantile, solve_nothing
from models import Metrics, Request, from_mask
from models.request import Policy
from solver.engine import solve

Value = TypeVar("Value")

RUNS, EMPTY_RUNS = 3, 5
LONG_MS = 100.0
"""What took this long is not run again: noise is small beside it."""

WITHIN_MS = (5, 20, 50, 100)


@dataclass(frozen=True)
class Timed:
    """One solve: wall time and its parts in milliseconds, what it proved, and the metrics that it reached."""

    total_ms: float
    build_ms: float = 0.0
    solve_ms: float = 0.0
    proof: str | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True)
class SpeedRow:
    """One engine at one point. Times in milliseconds; ``empty_ms`` is an empty CP-SAT solve among them.

    ``within``: how many solves ended by proof in at most 5, 20, 50, 100 ms. ``differing``: instances on which
    two engines both proved an optimum, and not the same: a defect.
    """

    series: str
    at: int | str
    machine: str
    policy: str
    engine: str
    solves: int
    proven: int
    by_dp: int
    build_ms: float
    solve_ms: float
    p10_ms: float
    median_ms: float
    p90_ms: float
    p99_ms: float
    worst_ms: float
    empty_ms: float
    within: tuple[int, ...] = ()
    differing: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Median as a multiple of an empty solve."""
        return self.median_ms / self.empty_ms

    @property
    def ratio_p99(self) -> float:
        """99th percentile as a multiple of an empty solve."""
        return self.p99_ms / self.empty_ms


@dataclass(frozen=True)
class TimeLimits:
    """Seconds for our engines and for the plain model."""

    ours: float = 1.0
    plain: float = 10.0


@dataclass(frozen=True)
class Question:
    """An instance with its requests."""

    instance: Instance
    requests: tuple[Request, ...]


def measure(point: Point, policy: Policy, sets: int, limits: TimeLimits) -> list[SpeedRow]:
    """A row per engine, over so many instances."""
    questions = [_question(each, point, policy) for each in _instances(point, sets)]
    for engine in point.engines:
        _ask(engine, questions[0], TimeLimits(limits.ours, plain=min(limits.plain, 0.1)))
    gc.collect()
    empty: list[float] = []
    timed: dict[str, list[Timed]] = {engine: [] for engine in point.engines}
    for question in questions:
        for engine, runs in _in_turn(question, point.engines, limits, empty).items():
            timed[engine].append(_middle(runs))
    differing = tuple(_differing(questions, timed))
    return [_row(point, policy, engine, timed[engine], median(empty), differing) for engine in point.engines]


def _instances(point: Point, sets: int) -> list[Instance]:
    """Those with a CPU for every request."""
    found = instances(point.machine, 4 * sets, occupancies=point.occupancies)
    return [each for each in found if each.cpus >= point.requests][:sets]


def _question(instance: Instance, point: Point, policy: Policy) -> Question:
    """The CPUs of the instance, shared out among the requests."""
    each, more = divmod(instance.cpus, point.requests)
    sizes = [each + (number < more) for number in range(point.requests)]
    requests = tuple(Request(name=f"r{i}", cpus=size, policy=policy) for i, size in enumerate(sizes))
    return Question(instance, requests)


def _in_turn(
    question: Question, engines: Sequence[str], limits: TimeLimits, empty: list[float]
) -> dict[str, list[Timed]]:
    """Several runs of each engine, by turns, after some of an empty solve."""
    empty.append(median(_clocked(solve_nothing)[0] for _ in range(EMPTY_RUNS)))
    runs: dict[str, list[Timed]] = {engine: [] for engine in engines}
    for _ in range(RUNS):
        for engine, done in runs.items():
            if not done or done[-1].total_ms < LONG_MS:
                done.append(_ask(engine, question, limits))
    return runs


def _middle(runs: Sequence[Timed]) -> Timed:
    return sorted(runs, key=lambda run: run.total_ms)[len(runs) // 2]


def _ask(engine: str, question: Question, limits: TimeLimits) -> Timed:
    machine, free = prepared(question.instance.machine), question.instance.free
    if engine == "plain":
        total, answer = _clocked(lambda: solve_plain(machine, question.requests[0], free, limits.plain))
        return Timed(total, proof="cpsat" if answer.proven else None, metrics=answer.metrics)
    cpus = from_mask(free)
    total, result = _clocked(
        lambda: solve(machine, question.requests, free=cpus, engine=engine, time_limit=limits.ours)  # type: ignore[arg-type]
    )
    proof = result.engine if result.status in ("optimal", "infeasible") else None
    return Timed(total, result.build_ms, result.solve_ms, proof, result.metrics)


def _clocked(action: Callable[[], Value]) -> tuple[float, Value]:
    with _no_collection():
        start = time.perf_counter()
        result = action()
        return 1000 * (time.perf_counter() - start), result


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _differing(questions: Sequence[Question], timed: dict[str, list[Timed]]) -> Iterator[str]:
    """Instances whose optimum depends on who proved it."""
    for question, answers in zip(questions, zip(*timed.values(), strict=True), strict=True):
        optima = {tuple((answer.metrics or {}).items()) for answer in answers if answer.proof}
        if len(optima) > 1:
            yield f"{question.instance}: {sorted(optima)}"


def _row(
    point: Point, policy: str, engine: str, timed: Sequence[Timed], empty: float, differing: tuple[str, ...]
) -> SpeedRow:
    totals = [each.total_ms for each in timed]
    proven = [each.total_ms for each in timed if each.proof]
    return SpeedRow(
        series=point.series,
        at=point.at,
        machine=point.machine,
        policy=policy,
        engine=engine,
        solves=len(timed),
        proven=len(proven),
        by_dp=sum(each.proof == "dp" for each in timed),
        build_ms=median(each.build_ms for each in timed),
        solve_ms=median(each.solve_ms for each in timed),
        p10_ms=quantile(totals, 0.1),
        median_ms=median(totals),
        p90_ms=quantile(totals, 0.9),
        p99_ms=quantile(totals, 0.99),
        worst_ms=max(totals),
        empty_ms=empty,
        within=tuple(sum(total <= most for total in proven) for most in WITHIN_MS),
        differing=differing,
    )
