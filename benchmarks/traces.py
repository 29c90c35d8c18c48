"""Traces of claims that arrive and leave: Poisson arrivals, heavy-tailed lifetimes, several mixes of sizes.

Random numbers depend on mix and seed alone, so a higher occupancy is the same claims arriving faster, and every
allocator lives through the same trace.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import fmean

MIXES: dict[str, dict[int, int]] = {
    "small": {1: 3, 2: 5, 3: 1, 4: 4, 6: 1, 8: 2},
    "mixed": {1: 2, 2: 4, 3: 1, 4: 4, 6: 2, 8: 3, 12: 2, 16: 2, 24: 1, 32: 1},
    "large": {4: 2, 8: 4, 12: 2, 16: 4, 24: 2, 32: 3, 48: 1, 64: 1},
}
"""CPUs of a claim and how often it comes, in parts."""

TAIL, LONGEST = 1.5, 30.0
"""Lifetimes are Pareto with this exponent (infinite variance), cut at so many times the shortest."""

WARM_UP = 0.4
"""Share of the arrivals after which the node is taken to be in its usual state."""

_CALIBRATION_SEEDS = range(10_000, 10_008)


@dataclass(frozen=True)
class Arrival:
    """A claim: when it comes, for how long, and how many CPUs it wants."""

    time: float
    lifetime: float
    cpus: int


def trace(mix: str, cpus: int, occupancy: float, arrivals: int, seed: int) -> list[Arrival]:
    """Arrivals that hold about this share of a machine's CPUs, as long as none is refused but for want of CPUs."""
    return _arrivals(mix, arrivals, seed, _rate(mix, cpus, occupancy, arrivals))


def _arrivals(mix: str, count: int, seed: int, rate: float) -> list[Arrival]:
    rng, sizes = Random(f"{mix}/{seed}"), MIXES[mix]
    found, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(1.0) / rate
        [size] = rng.choices(list(sizes), list(sizes.values()))
        found.append(Arrival(now, min(rng.paretovariate(TAIL), LONGEST), size))
    return found


@lru_cache(maxsize=256)
def _rate(mix: str, cpus: int, occupancy: float, count: int) -> float:
    """Arrivals per unit of time that give the occupancy in traces of this length but other seeds.

    Found by bisection on counts of CPUs, without any placement.
    """
    low, high = 0.0, 20.0 * cpus
    for _ in range(20):
        middle = (low + high) / 2
        traces = (_arrivals(mix, count, seed, middle) for seed in _CALIBRATION_SEEDS)
        reached = fmean(_occupancy(arrivals, cpus) for arrivals in traces)
        low, high = (middle, high) if reached < occupancy else (low, middle)
    return (low + high) / 2


def _occupancy(arrivals: Sequence[Arrival], cpus: int) -> float:
    """Mean share of CPUs held, seen by arrivals after the warm-up."""
    leaving: list[tuple[float, int]] = []
    held, seen = 0, []
    for arrival in arrivals:
        while leaving and leaving[0][0] <= arrival.time:
            held -= heapq.heappop(leaving)[1]
        if held + arrival.cpus <= cpus:
            held += arrival.cpus
            heapq.heappush(leaving, (arrival.time + arrival.lifetime, arrival.cpus))
        seen.append(held / cpus)
    return fmean(seen[int(WARM_UP * len(seen)) :])
