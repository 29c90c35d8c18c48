"""Churn: claims arrive and leave on one node, the same trace for each allocator."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from statistics import fmean

from benchmarks.allocators import ALLOCATORS, Ask
from benchmarks.instances import prepared
from benchmarks.node_state import STATES, Placed, place, state
from benchmarks.spread import Mean, mean_of
from benchmarks.traces import WARM_UP, Arrival, trace

RULES = ("any", "one-node")
PERIODS = 20
METRICS = ("refused", "refused_cpus", "fewest_numa", "fewest_numa_now", "extra_l3s", *STATES, "occupancy")
BETTER_IS_MORE = frozenset({"fewest_numa", "fewest_numa_now", *STATES[1:], "occupancy"})


@dataclass(frozen=True)
class Setting:
    """A machine, a mix of sizes, a rule, and the share of CPUs that is to be held.

    Rule ``any``: claims may lie anywhere. ``one-node``: every claim that an empty NUMA node could hold must lie on
    one, and is refused where it cannot.
    """

    machine: str
    mix: str
    rule: str
    occupancy: float


@dataclass(frozen=True)
class Life:
    """One trace under one allocator: means after the warm-up, and ``largest_on_numa`` period by period."""

    means: dict[str, float]
    periods: list[float]


@dataclass(frozen=True)
class ChurnRow:
    """All seeds of a setting under one allocator; ``against``: paired differences to the baseline."""

    setting: Setting
    allocator: str
    means: dict[str, Mean]
    against: dict[str, Mean]
    periods: list[float]


def live(setting: Setting, allocator: str, arrivals: int, seed: int) -> Life:
    """The life of a node."""
    machine = prepared(setting.machine).machine
    claims = trace(setting.mix, machine.online.bit_count(), setting.occupancy, arrivals, seed)
    node = _Node(setting, allocator, seed)
    seen = [node.arrive(claim) for claim in claims]
    return _life(machine.online.bit_count(), seen)


@dataclass(frozen=True)
class _Seen:
    """What one arrival saw: its placement (``None``: refused), the state after it, CPUs held."""

    cpus: int
    placed: Placed | None
    state: tuple[int, ...]
    held: int


class _Node:
    """The node: CPUs that are free, claims that live, when they leave."""

    def __init__(self, setting: Setting, allocator: str, seed: int) -> None:
        self._prepared = prepared(setting.machine)
        self._machine = self._prepared.machine
        self._free = self._machine.online
        self._allocate = ALLOCATORS[allocator]
        self._rng = Random(f"{allocator}/{seed}")
        self._leaving: list[tuple[float, int, Placed]] = []
        largest = max(node.mask.bit_count() for node in self._machine.numa_nodes)
        self._ruled = largest if setting.rule == "one-node" else 0

    def arrive(self, claim: Arrival) -> _Seen:
        """Let claims leave that have ended, place this one if that can be done."""
        while self._leaving and self._leaving[0][0] <= claim.time:
            self._free |= heapq.heappop(self._leaving)[2].mask
        placed = self._place(Ask(claim.cpus, one_node=claim.cpus <= self._ruled))
        if placed is not None:
            self._free &= ~placed.mask
            heapq.heappush(self._leaving, (claim.time + claim.lifetime, placed.mask, placed))
        after = state(self._machine, self._free, (other for _, _, other in self._leaving))
        return _Seen(claim.cpus, placed, after, (self._machine.online & ~self._free).bit_count())

    def _place(self, ask: Ask) -> Placed | None:
        if ask.cpus > self._free.bit_count():
            return None
        mask = self._allocate(self._prepared, self._free, ask, self._rng)
        if mask is None:
            return None
        if mask & ~self._free or mask.bit_count() != ask.cpus:
            raise AssertionError(f"allocator gave {mask:x} of {self._free:x} for {ask}")
        return place(self._machine, self._free, mask)


def _life(cpus: int, seen: Sequence[_Seen]) -> Life:
    usual = seen[int(WARM_UP * len(seen)) :]
    placed = [one.placed for one in usual if one.placed is not None]
    means = {
        "refused": 1 - len(placed) / len(usual),
        "refused_cpus": sum(one.cpus for one in usual if one.placed is None) / sum(one.cpus for one in usual),
        "fewest_numa": fmean(one.extra_numa == 0 for one in placed),
        "fewest_numa_now": fmean(one.extra_numa_now == 0 for one in placed),
        "extra_l3s": fmean(one.extra_l3 for one in placed),
        **{name: fmean(one.state[i] for one in usual) for i, name in enumerate(STATES)},
        "occupancy": fmean(one.held for one in usual) / cpus,
    }
    largest = STATES.index("largest_on_numa")
    edges = [len(seen) * period // PERIODS for period in range(PERIODS + 1)]
    periods = [fmean(one.state[largest] for one in seen[a:b]) for a, b in pairwise(edges) if a < b]
    return Life(means, periods)


def measure(
    settings: Iterable[Setting],
    allocators: Sequence[str],
    baseline: str,
    arrivals: int,
    seeds: int,
    processes: int,
) -> Iterator[ChurnRow]:
    """A row per setting and allocator, as they are ready. The baseline is always among them."""
    names = list(dict.fromkeys([baseline, *allocators]))
    with ProcessPoolExecutor(processes) as pool:
        for setting in settings:
            jobs = {
                name: [pool.submit(live, setting, name, arrivals, seed) for seed in range(seeds)] for name in names
            }
            lives = {name: [job.result() for job in each] for name, each in jobs.items()}
            yield from (_row(setting, name, lives[name], lives[baseline]) for name in names)


def _row(setting: Setting, name: str, own: list[Life], base: list[Life]) -> ChurnRow:
    values = {metric: [life.means[metric] for life in own] for metric in METRICS}
    against = {
        metric: mean_of([a - b.means[metric] for a, b in zip(values[metric], base, strict=True)])
        for metric in METRICS
    }
    means = {metric: mean_of(each) for metric, each in values.items()}
    periods = [fmean(each) for each in zip(*(life.periods for life in own), strict=True)]
    return ChurnRow(setting, name, means, {} if own is base else against, periods)


def as_json(rows: Iterable[ChurnRow]) -> list[dict[str, object]]:
    """Rows as plain values: each mean with half the width of its 95 % interval."""
    return [
        asdict(row.setting)
        | {
            "allocator": row.allocator,
            "means": {name: _pair(mean) for name, mean in row.means.items()},
            "against": {name: _pair(mean) for name, mean in row.against.items()},
            "largest_on_numa_by_period": [round(value, 1) for value in row.periods],
        }
        for row in rows
    ]


def _pair(mean: Mean) -> list[float]:
    return [round(mean.value, 4), round(mean.half, 4)]
