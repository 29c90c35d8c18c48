"""Whether many solves in one process grow in memory."""

import resource
from collections.abc import Iterator
from pathlib import Path

from benchmarks.instances import instances, prepared
from models import Request, from_mask
from solver.engine import solve


def resident_mb() -> float:
    """Resident memory of this process in MB (``/proc/self/statm``: pages, the second field)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def growth(machine: str, solves: int, engine: str) -> Iterator[tuple[int, float]]:
    """(Solves done, resident MB) after each tenth of so many solves on varying free sets."""
    cases = list(instances(machine, 200))
    for number in range(1, solves + 1):
        case = cases[number % len(cases)]
        request = Request(cpus=case.cpus, policy="distributed" if number % 2 else "packed")
        solve(prepared(machine), request, free=from_mask(case.free), engine=engine)  # type: ignore[arg-type]
        if number % max(1, solves // 10) == 0:
            yield number, resident_mb()
