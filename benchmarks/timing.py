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


def solve_nothing() -> None:
    """An empty CP-SAT solve with one worker: what any question to CP-SAT costs at least."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.solve(cp_model.CpModel())


def empty_solve() -> float:
    """Median time in milliseconds of an empty CP-SAT solve, in a warm process."""
    solve_nothing()
    gc.collect()
    return median(milliseconds(solve_nothing, repeats=1) for _ in range(50))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of all values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
