"""The CPUs of this node: what may be given to claims, and what everyone else runs on."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from models import CPU, Topology


@dataclass(frozen=True)
class NodeCPUs:
    """CPU numbers of one node. ``isolated``: by the kernel (``isolcpus``); claims may have them, the pool not.

    ``min_shared``: how many CPUs must stay in the shared pool whatever claims ask for. ``kept``: CPUs that are
    not published for that; others may stay in their place. All, if there are not so many that can be shared.
    ``memoryless``: NUMA nodes to which no memory can be bound, for they have none. ``offline``: CPUs that have
    gone down since the others were read; no mask may name them, or the kernel refuses it or takes less.
    """

    online: frozenset[int]
    reserved: frozenset[int]
    isolated: frozenset[int] = frozenset()
    min_shared: int = 0
    kept: frozenset[int] = frozenset()
    memoryless: frozenset[int] = frozenset()
    offline: frozenset[int] = frozenset()

    @classmethod
    def of(cls, topology: Topology, isolated: Iterable[int] = (), min_shared: int | None = None) -> "NodeCPUs":
        """Those of a machine. Without reserved CPUs at least one stays shared, for the runtime reads an empty
        list of CPUs as "no change"."""
        least = (0 if topology.reserved else 1) if min_shared is None else min_shared
        node = cls(topology.online, topology.reserved, frozenset(isolated) & topology.online, least)
        return replace(node, kept=_kept(node, topology))

    @property
    def allocatable(self) -> frozenset[int]:
        """Online minus reserved."""
        return self.online - self.reserved

    def pool(self, held: frozenset[int]) -> frozenset[int]:
        """What containers without a claim run on: allocatable minus held and isolated, else the reserved CPUs, but
        for those that claims have held since before they were reserved."""
        return self.spare(held) - self.offline or self.reserved - held - self.offline

    @property
    def withholds(self) -> bool:
        """Whether the CPUs that must stay shared are kept from the solver: it cannot know that it should take
        isolated ones instead."""
        return bool(self.allocatable & self.isolated)

    def withheld(self, free: frozenset[int]) -> frozenset[int]:
        """Of free CPUs, those that stay shared: the ones that are not published, or others in their place."""
        sharable = sorted(free - self.isolated, key=lambda cpu: (cpu not in self.kept, cpu))
        return frozenset(sharable[: self.min_shared])

    def up(self, cpus: frozenset[int]) -> frozenset[int]:
        """Those of a claim's CPUs that can run anything; all of them where none can, which the kernel refuses."""
        return cpus - self.offline or cpus

    def spare(self, held: frozenset[int]) -> frozenset[int]:
        """The shared pool proper, which may be empty."""
        return self.allocatable - held - self.isolated


def numa_nodes(topology: Topology, cpus: frozenset[int]) -> frozenset[int]:
    """NUMA nodes of the CPUs; none on a machine without any."""
    return frozenset(cpu.numa for cpu in topology.cpus if cpu.cpu in cpus and cpu.numa is not None)


def _kept(node: NodeCPUs, topology: Topology) -> frozenset[int]:
    """So many CPUs as must stay shared, core by core, always of the NUMA node that has most of them."""
    sharable = node.spare(frozenset())
    if len(sharable) < node.min_shared:
        return node.allocatable
    nodes = _cores(cpu for cpu in topology.cpus if cpu.cpu in sharable)
    kept: list[int] = []
    while len(kept) < node.min_shared:
        core = max(nodes, key=lambda cores: sum(map(len, cores))).pop()
        kept += core[len(kept) - node.min_shared :]
    return frozenset(kept)


def _cores(cpus: Iterable[CPU]) -> list[list[list[int]]]:
    """CPU numbers by core and NUMA node, each in the order of its lowest CPU."""
    nodes: dict[int | None, dict[int, list[int]]] = {}
    for cpu in sorted(cpus, key=lambda each: each.cpu):
        nodes.setdefault(cpu.numa, {}).setdefault(cpu.core, []).append(cpu.cpu)
    return [list(cores.values()) for cores in nodes.values()]
