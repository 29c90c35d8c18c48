"""One-shot quality: how far the kubelet's greedy is from the optimum, metric by metric."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.instances import Instance, instances, prepared
from benchmarks.spread import Excess, excess
from models import Metrics, Request, Result, from_mask
from solver.engine import solve
from topologies import catalog

POLICIES = ("packed", "distributed")
OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "prefer_l3": {"prefer_l3": True},
    "full_cores": {"full_cores": True},
    "spread": {"threads": "spread"},
}
"""Options that the kubelet has too, so that its greedy is asked for nothing it does not know."""

SYNTHETIC = (
    "socket:2 numa:3 l3:2 core:5 cpu:2",
    "socket:1 numa:4 l3:1 core:6 cpu:4",
    "socket:4 numa:2 l3:2 core:4 cpu:2",
    "socket:2 numa:8 l3:1 core:4 cpu:1",
)
"""Besides the catalog: odd numbers of cores and NUMA nodes, four CPUs a core, many small NUMA nodes."""

TIME_LIMIT = 10.0
"""Seconds; long, so that what comes out does not depend on how busy this machine is."""


@dataclass(frozen=True)
class Judged:
    """One request on one instance: metrics of the greedy (``None``: it found nothing) and of the best answer."""

    instance: Instance
    option: str
    request: Request
    proven: bool
    optimum: Metrics
    greedy: Metrics | None

    @property
    def differences(self) -> Metrics:
        """Greedy minus optimum, by metric. May be negative where a metric that counts for more is worse."""
        return {name: value - self.optimum[name] for name, value in (self.greedy or {}).items()}

    @property
    def wrong(self) -> bool:
        """Whether the greedy answer is not optimal."""
        return any(self.differences.values())

    @property
    def dominated(self) -> bool:
        """Whether greedy is better in no metric and worse in one."""
        return self.wrong and min(self.differences.values()) >= 0

    @property
    def nodes_wasted(self) -> int:
        """NUMA nodes that greedy uses beyond the optimum."""
        return max(0, self.differences.get("numa_nodes", 0))


@dataclass(frozen=True)
class QualityRow:
    """All instances under one policy and option. Shares are of those that greedy places."""

    policy: str
    option: str
    cases: int
    nothing: int
    proven: float
    wrong: float
    dominated: float
    metrics: dict[str, Excess]


def machines() -> tuple[str, ...]:
    """The whole catalog and the synthetic machines."""
    return (*catalog.names(), *SYNTHETIC)


def judge_machine(machine: str, sets: int, seed: int = 0) -> Iterator[Judged]:
    """So many free sets of a machine under every policy and option, where that can be placed at all."""
    for instance in instances(machine, sets, seed):
        for policy in POLICIES:
            for option in OPTIONS:
                request = request_of(instance, policy, option)
                judged = None if request is None else judge(instance, option, request)
                if judged is not None:
                    yield judged


def request_of(instance: Instance, policy: str, option: str) -> Request | None:
    """The instance's request; for whole cores its size is rounded down to what whole free cores can hold."""
    cpus = instance.cpus
    if option == "full_cores":
        cores = [core.mask for core in prepared(instance.machine).machine.cores]
        whole = [core.bit_count() for core in cores if core & ~instance.free == 0]
        threads = max(whole, default=1)
        cpus = min(cpus, sum(whole)) // threads * threads
    return Request(cpus=cpus, policy=policy, **OPTIONS[option]) if cpus else None  # type: ignore[arg-type]


def judge(instance: Instance, option: str, request: Request) -> Judged | None:
    """Greedy beside the optimum; ``None`` where no allocation exists."""
    result = best(instance.machine, instance.free, request)
    if not result.allocations:
        return None
    [allocation] = result.allocations
    proven = result.status == "optimal"
    return Judged(instance, option, request, proven, allocation.metrics, allocation.greedy)


def best(machine: str, free: int, request: Request) -> Result:
    """The best answer, with the greedy's metrics in it."""
    return solve(prepared(machine), request, free=from_mask(free), time_limit=TIME_LIMIT)


def summary(judged: Iterable[Judged]) -> list[QualityRow]:
    """A row per policy and option."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        groups.setdefault((one.request.policy, one.option), []).append(one)
    return [_row(policy, option, groups[policy, option]) for policy, option in sorted(groups, key=_position)]


def _position(key: tuple[str, str]) -> tuple[int, int]:
    return POLICIES.index(key[0]), list(OPTIONS).index(key[1])


def _row(policy: str, option: str, group: Sequence[Judged]) -> QualityRow:
    placed = [one for one in group if one.greedy is not None]
    names = group[0].optimum
    return QualityRow(
        policy=policy,
        option=option,
        cases=len(group),
        nothing=len(group) - len(placed),
        proven=_share(one.proven for one in group),
        wrong=_share(one.wrong for one in placed),
        dominated=_share(one.dominated for one in placed),
        metrics={name: excess([one.differences[name] for one in placed]) for name in names},
    )


def _share(flags: Iterable[bool]) -> float:
    found = list(flags)
    return sum(found) / len(found) if found else 0.0


def wasteful(judged: Iterable[Judged], key: Callable[[Judged], str]) -> dict[str, dict[str, float]]:
    """Per key and policy the share of cases in which greedy wastes a NUMA node.

    On machines with several, without ``spread``: there the kubelet looks for free cores before all else, and NUMA
    nodes are no mistake of its search.
    """
    groups: dict[str, dict[str, list[bool]]] = {}
    for one in judged:
        if one.greedy is not None and one.option != "spread" and _has_numa(one.instance.machine):
            policies = groups.setdefault(key(one), {})
            policies.setdefault(one.request.policy, []).append(one.nodes_wasted > 0)
    return {name: {policy: _share(flags) for policy, flags in each.items()} for name, each in groups.items()}


def _has_numa(machine: str) -> bool:
    return len(prepared(machine).machine.numa_nodes) > 1
