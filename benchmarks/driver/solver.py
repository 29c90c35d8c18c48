"""The driver's solver alone: how fast it starts and answers, and how big it gets, while claims come and go."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

from benchmarks.driver.claims import turnover
from benchmarks.driver.processes import resident_mb
from benchmarks.driver.rows import CallRow, times
from benchmarks.timing import empty_solve
from driver.solving.client import WorkerSolver
from models import Request, Topology
from tests.driver.recorder import Recorder
from topologies.load import load

STARTS = 5
TIME_LIMIT = {"cpsat": 2.0, "greedy": 0.0}
"""The driver's setting for an engine, in seconds."""


def start_seconds(name: str) -> float:
    """Median time from ``start`` until the solver's process is ready."""
    machine = load(name)
    taken = []
    for _ in range(STARTS):
        began = time.perf_counter()
        _begin(machine, "cpsat").stop()
        taken.append(time.perf_counter() - began)
    return median(taken)


def measure(name: str, engine: str, claims: int, seed: int) -> Iterator[CallRow]:
    """A row for each number of requests in a claim, after a tenth as many claims to warm up."""
    desk, warm_up = Desk(load(name), engine), claims // 10
    coming = turnover(claims + warm_up, len(desk.machine.allocatable), seed, desk.come, desk.go)
    for _ in islice(coming, warm_up):
        pass
    early, beside = desk.memory(), empty_solve()
    for asked in coming:
        desk.seconds[len(asked)].append(desk.last)
    late = desk.memory()
    desk.solver.stop()
    for requests, seconds in sorted(desk.seconds.items()):
        yield CallRow(
            machine=name,
            engine=engine,
            call=f"solve, {requests} request{'s' * (requests > 1)}",
            calls=len(seconds),
            **times(seconds, beside),
            solver_mb=(early, late) if engine == "cpsat" else None,
            fallbacks=desk.recorder.fallbacks.total(),
        )


class Desk:
    """A solver and the CPUs that are free for it."""

    def __init__(self, machine: Topology, engine: str) -> None:
        self.machine, self.free = machine, machine.allocatable
        self.recorder, self.seconds = Recorder(), defaultdict[int, list[float]](list)
        self.solver = _begin(machine, engine, self.recorder)
        self.last = 0.0

    def come(self, asked: Sequence[Request]) -> frozenset[int]:
        """Solve; the CPUs that are held from then on."""
        began = time.perf_counter()
        result = self.solver.solve(asked, self.free)
        self.last = time.perf_counter() - began
        given = frozenset[int]().union(*(each.cpuset for each in result.allocations))
        self.free -= given
        return given

    def go(self, cpus: frozenset[int]) -> None:
        """These are free again."""
        self.free |= cpus

    def memory(self) -> int:
        """MB of the solver's process, 0 without one."""
        return resident_mb(self.solver.pid) if self.solver.pid else 0


def _begin(machine: Topology, engine: str, recorder: Recorder | None = None) -> WorkerSolver:
    """A solver that is ready."""
    solver = WorkerSolver(machine, TIME_LIMIT[engine], recorder or Recorder())
    solver.start()
    while engine == "cpsat" and solver.pid is None:
        time.sleep(0.001)
    return solver
