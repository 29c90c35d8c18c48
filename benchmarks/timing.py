"""Times as ratios to something measured beside them: this machine may be shared and noisy."""

import gc
import time
from collections.abc import Callable, Sequence
from statistics import median

Action = Callable[[], object]


def milliseconds(action: Action, repeats: int = 3) -> float:
    """The least of several runs after none to warm up: the caller decides what is warm."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1000)
    return min(times)


def empty_solve() -> float:
    """Median time in milliseconds of an empty CP-SAT solve with one worker, in a warm process."""
    from ortools.sat.python import cp_model

    def solve() -> None:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.solve(cp_model.CpModel())

    solve()
    gc.collect()
    return median(milliseconds(solve, repeats=1) for _ in range(50))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of all values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
