"""Time to proof: from a request on a prepared machine to an answer that is proven optimal."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.instances import Instance, instances, prepared
from benchmarks.timing import empty_solve, milliseconds, quantile
from models import Request, Result, from_mask
from solver.engine import solve
from solver.methods import EngineChoice

POLICIES = ("packed", "distributed")


@dataclass(frozen=True)
class ProofRow:
    """One machine and policy: milliseconds, and multiples of an empty CP-SAT solve of the same run."""

    machine: str
    policy: str
    solves: int
    proven: int
    by_dp: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    empty_ms: float

    @property
    def ratio(self) -> float:
        """Median as a multiple of an empty solve."""
        return self.median_ms / self.empty_ms


def measure(machines: Iterable[str], sets: int, engine: EngineChoice, time_limit: float) -> Iterator[ProofRow]:
    """A row per machine and policy, over so many random free sets each."""
    for machine in machines:
        cases = list(instances(machine, sets))
        for policy in POLICIES:
            yield _row(machine, policy, cases, engine, time_limit)


def _row(machine: str, policy: str, cases: list[Instance], engine: EngineChoice, time_limit: float) -> ProofRow:
    empty = empty_solve()
    _solve(cases[0], policy, engine, time_limit)
    results: list[Result] = []
    times: list[float] = []
    for case in cases:

        def run(case: Instance = case) -> None:
            results.append(_solve(case, policy, engine, time_limit))

        times.append(milliseconds(run, repeats=1))
    return ProofRow(
        machine=machine,
        policy=policy,
        solves=len(cases),
        proven=sum(result.status == "optimal" for result in results),
        by_dp=sum(result.status == "optimal" and result.engine == "dp" for result in results),
        median_ms=median(times),
        p99_ms=quantile(times, 0.99),
        worst_ms=max(times),
        empty_ms=empty,
    )


def _solve(case: Instance, policy: str, engine: EngineChoice, time_limit: float) -> Result:
    request = Request(cpus=case.cpus, policy=policy)  # type: ignore[arg-type]
    return solve(prepared(case.machine), request, free=from_mask(case.free), engine=engine, time_limit=time_limit)


def as_json(rows: Iterable[ProofRow]) -> list[dict[str, object]]:
    """Rows as plain values."""
    return [asdict(row) | {"ratio": round(row.ratio, 1)} for row in rows]
