"""Gauges computed from the ledger when Prometheus asks: CPUs, how claims lie, what is left, what is wrong."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, get_args

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from driver.conditions import Condition, Conditions
from driver.ledger.entry import Entry, Snapshot
from driver.metrics import PREFIX
from driver.node import numa_nodes
from models import Topology, format_cpuset, to_mask
from solver.score import Scorer
from topologies.graph import Machine


class Gauges(Collector):
    """Register it with ``Metrics.registry``. ``snapshot`` is called at each scrape."""

    def __init__(self, topology: Topology, snapshot: Callable[[], Snapshot], conditions: Conditions) -> None:
        self._topology, self._machine = topology, Scorer(Machine(topology))
        self._snapshot, self._conditions = snapshot, conditions

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: registering must not read the ledger."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | InfoMetricFamily]:
        """All gauges."""
        snapshot = self._snapshot()
        yield self._live_claims(snapshot)
        yield from _cpus(snapshot)
        yield from _alignment(self._machine, snapshot)
        yield from _fragmentation(self._machine, snapshot)
        yield self._current_conditions()

    def _live_claims(self, snapshot: Snapshot) -> InfoMetricFamily:
        """Who has which CPUs: as many series as claims live, of which each holds a CPU at least."""
        family = InfoMetricFamily(f"{PREFIX}_claim", "Live claims, their pods and their CPUs.")
        for entry in snapshot.entries.values():
            family.add_metric((), self._labels(entry))
        return family

    def _labels(self, entry: Entry) -> dict[str, str]:
        return {
            "namespace": entry.namespace,
            "claim": entry.name,
            "uid": entry.uid,
            "pod": _pod(entry),
            "cpuset": format_cpuset(entry.cpuset),
            "numa_nodes": format_cpuset(numa_nodes(self._topology, entry.cpuset)),
            "policy": _policy(entry),
            "engine": entry.chosen_by,
        }

    def _current_conditions(self) -> GaugeMetricFamily:
        current = self._conditions.current()
        values = {(name,): int(name in current) for name in get_args(Condition)}
        return _gauge("condition", "Whether it keeps new claims from being prepared.", values, "condition")


def _cpus(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    allocated = frozenset[int]().union(*(entry.cpuset for entry in snapshot.entries.values()))
    for name, text, cpus in (
        ("allocated", "CPUs that claims hold.", allocated),
        ("free", "CPUs that a claim could get.", snapshot.free),
        ("reserved", "CPUs kept for the system.", snapshot.node.reserved),
        ("shared", "CPUs that containers without a claim run on.", snapshot.pool),
        ("foreign", "CPUs that the kubelet's CPU manager has given to containers.", snapshot.foreign.given),
        ("quarantined", "CPUs that ledger files which cannot be read keep from everyone.", snapshot.quarantined),
    ):
        yield _gauge(f"cpus_{name}", text, {(): len(cpus)})


def _alignment(machine: Scorer, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    entries = snapshot.entries.values()
    placed = [(entry, _span(machine.numa_nodes, entry), _span(machine.sockets, entry)) for entry in entries]
    nodes = Counter((_policy(entry), str(numa_nodes)) for entry, numa_nodes, _ in placed)
    sockets = Counter((_policy(entry), str(sockets)) for entry, _, sockets in placed)
    fewest = _fewest([(node & machine.allocatable).bit_count() for node in machine.numa_nodes])
    aligned = Counter({(_policy(entry),): 0 for entry in entries})
    aligned.update((_policy(entry),) for entry, span, _ in placed if span <= fewest(len(entry.cpuset)))
    text = "Live claims by how many {} they span; policy 'given' where others chose the CPUs."
    yield _gauge("claims", text.format("NUMA nodes"), nodes, "policy", "numa_nodes")
    yield _gauge("claims_by_sockets", text.format("sockets"), sockets, "policy", "sockets")
    text = "Live claims on as few NUMA nodes as they would span on an empty machine."
    yield _gauge("claims_on_fewest_numa_nodes", text, aligned, "policy")


def _policy(entry: Entry) -> str:
    policies = {allocation.policy for allocation in entry.allocations}
    return "given" if not policies else "distributed" if "distributed" in policies else "packed"


def _pod(entry: Entry) -> str:
    """Name of the pod that carries the claim, or of the only one that may; its uid if that is all we know."""
    uids = [entry.owner.pod_uid] if entry.owner else sorted(entry.pods)
    return (entry.pod_names.get(uids[0]) or uids[0]) if len(uids) == 1 else ""


def _span(domains: Sequence[int], entry: Entry) -> int:
    mask = to_mask(entry.cpuset)
    return sum(1 for domain in domains if domain & mask)


def _fewest(sizes: Sequence[int]) -> Callable[[int], int]:
    """On how many NUMA nodes of these sizes so many CPUs fit."""
    fitting = list(accumulate(sorted(sizes, reverse=True)))
    return lambda cpus: 1 + sum(1 for size in fitting if size < cpus)


def _fragmentation(machine: Scorer, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    free = to_mask(snapshot.free)
    nodes = [node & machine.allocatable for node in machine.numa_nodes]
    for name, text, value in (
        ("free_whole_cores", "Cores all of whose CPUs are free.", _whole(machine.cores, free)),
        ("free_whole_numa_nodes", "NUMA nodes all of whose allocatable CPUs are free.", _whole(nodes, free)),
        (
            "largest_claim_in_numa_node",
            "CPUs of the largest claim that still fits into one NUMA node.",
            max((node & free).bit_count() for node in nodes),
        ),
    ):
        yield _gauge(name, text, {(): value})


def _whole(domains: Iterable[int], free: int) -> int:
    return sum(1 for domain in domains if domain and domain & ~free == 0)


def _gauge(name: str, text: str, values: Mapping[Any, int], *labels: str) -> GaugeMetricFamily:
    """A gauge whose values are by tuples of its labels' values."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family
