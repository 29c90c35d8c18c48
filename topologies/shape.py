"""The size of a machine in numbers, and the short name made of them."""

from collections import Counter
from dataclasses import dataclass

from models import Topology


@dataclass(frozen=True)
class Shape:
    """How many of each a machine has.

    ``numa_nodes`` are those with CPUs, the implicit one of a machine without NUMA included. ``smt`` holds the
    numbers of siblings that occur, ascending: ``(1, 2)`` on a machine where only some cores have two.
    """

    sockets: int
    numa_nodes: int
    l3s: int
    cores: int
    cpus: int
    smt: tuple[int, ...]

    @classmethod
    def of(cls, topology: Topology) -> "Shape":
        """The shape of the machine, from its online CPUs."""
        siblings = Counter(cpu.core for cpu in topology.cpus)
        return cls(
            sockets=len({cpu.socket for cpu in topology.cpus}),
            numa_nodes=len({cpu.numa for cpu in topology.cpus}),
            l3s=len({cpu.l3 for cpu in topology.cpus} - {None}),
            cores=len(siblings),
            cpus=len(topology.cpus),
            smt=tuple(sorted(set(siblings.values()))),
        )

    def __str__(self) -> str:
        """For example ``2s8n-128c256t``: sockets, NUMA nodes, cores, CPUs (hardware threads)."""
        return f"{self.sockets}s{self.numa_nodes}n-{self.cores}c{self.cpus}t"
