"""The order in which the kubelet visits the domains of a machine.

Everywhere the rule is the same: fewest free CPUs first, then the lower id. Domains are kept in the order of
their ids, so a stable sort by free CPUs is all it takes and a domain can be its bit mask and nothing else.
Ids therefore matter here, though nowhere else in this project: renaming sockets, NUMA nodes, L3s or cores may
change which of two equally free ones the kubelet takes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from topologies.graph import Domain, Machine

Masks = tuple[int, ...]


class Sizes(NamedTuple):
    """The size assumed for every domain of a level, in CPUs; ``None``: each is counted.

    The kubelet divides the CPUs of the machine by the number of its sockets, cores, L3s and NUMA nodes. Where
    not all are equal (hybrid machines, some CPUs offline) that can give CPUs that are not free or miss whole
    cores. So we count, and keep the averages as a second opinion for ``unequal`` to judge.
    """

    socket: int | None = None
    core: int | None = None
    l3: int | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class MachineOrder:
    """A machine as the kubelet walks it: NUMA nodes in sockets or sockets in NUMA nodes, cores in the inner ones.

    All domains are bit masks of online CPUs, in the order of their ids.
    """

    numa_first: bool
    outer: Masks
    inner: Masks
    l3s: Masks
    cores: dict[int, Masks]
    """The cores of each inner domain and of each L3."""
    sizes: Sizes

    def outer_by_free(self, free: int) -> list[int]:
        """Outer domains with free CPUs, fewest first."""
        return fewest_free(self.outer, free)

    def inner_by_free(self, free: int) -> list[int]:
        """Inner domains with free CPUs: outer domain by outer domain, in each the fewest first."""
        found = (mask for outer in self.outer_by_free(free) for mask in fewest_free(self.inner, free, outer))
        return list(dict.fromkeys(found))

    def numa_nodes_by_free(self, free: int) -> list[int]:
        """NUMA nodes with free CPUs, in the kubelet's order."""
        return self.outer_by_free(free) if self.numa_first else self.inner_by_free(free)

    def sockets_by_free(self, free: int) -> list[int]:
        """Sockets with free CPUs, in the kubelet's order."""
        return self.inner_by_free(free) if self.numa_first else self.outer_by_free(free)

    def l3s_by_free(self, free: int) -> list[int]:
        """L3s with free CPUs: NUMA node by NUMA node, in each the fewest first."""
        nodes = self.numa_nodes_by_free(free)
        return list(dict.fromkeys(l3 for node in nodes for l3 in fewest_free(self.l3s, free, node)))

    def cores_by_free(self, free: int) -> Iterator[int]:
        """Cores with free CPUs: inner domain by inner domain, in each the fewest first; lazily."""
        return (core for inner in self.inner_by_free(free) for core in fewest_free(self.cores[inner], free))


def fewest_free(masks: Iterable[int], free: int, within: int = -1) -> list[int]:
    """Those of the domains that have a free CPU ``within``, by the number of their free CPUs, ascending."""
    return sorted((mask for mask in masks if mask & within & free), key=lambda mask: (mask & free).bit_count())


@lru_cache(maxsize=32)
def layouts_of(machine: Machine) -> tuple[MachineOrder, ...]:
    """The machine with its sizes counted; where domains of a kind differ in size, before that with averaged ones.

    Kept, since preparing a layout takes longer than an assignment.
    """
    sockets, numa_nodes, cores = map(_by_id, (machine.sockets, machine.numa_nodes, machine.cores))
    l3s = _l3s(machine)
    numa_first = len(sockets) >= len(numa_nodes)
    outer, inner = (numa_nodes, sockets) if numa_first else (sockets, numa_nodes)
    in_each = {mask: tuple(core for core in cores if core & mask) for mask in (*inner, *l3s)}
    views = _sizes(machine.online.bit_count(), sockets, cores, l3s, numa_nodes)
    return tuple(MachineOrder(numa_first, outer, inner, l3s, in_each, sizes) for sizes in views)


def _sizes(cpus: int, sockets: Masks, cores: Masks, l3s: Masks, numa_nodes: Masks) -> list[Sizes]:
    """Averages are rounded down, except those of NUMA nodes."""
    kinds = (sockets, cores, l3s, numa_nodes)
    if all(len({mask.bit_count() for mask in kind}) == 1 for kind in kinds):
        return [Sizes()]
    averaged = Sizes(
        socket=cpus // len(sockets),
        core=cpus // len(cores),
        l3=cpus // len(l3s),
        numa_node=-(-cpus // len(numa_nodes)),
    )
    return [averaged, Sizes()]


def _by_id(domains: Iterable[Domain]) -> Masks:
    """Masks in the order of ids; a domain that the kernel does not number has the kubelet's -1."""
    return tuple(d.mask for d in sorted(domains, key=lambda d: d.id if isinstance(d.id, int) else -1))


def _l3s(machine: Machine) -> Masks:
    """L3s by id. All CPUs without one share the kubelet's L3 number -1, whatever their NUMA nodes."""
    numbered = _by_id(l3 for l3 in machine.l3s if isinstance(l3.id, int))
    without = machine.online & ~sum(numbered)
    return (without, *numbered) if without else numbered
