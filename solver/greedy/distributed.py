"""Distributed: equal shares of the fewest NUMA nodes that allow it, each share packed (KEP-2902)."""

from solver.greedy.order import MachineOrder, layouts_of
from solver.greedy.packed import pack
from solver.greedy.shares import split_evenly
from solver.greedy.unequal import better_of
from topologies.graph import Machine


def take_distributed(
    machine: Machine, free: int, cpus: int, *, group: int = 1, spread: bool = False
) -> int | None:
    """Mask of the CPUs that the kubelet would give, distributed; ``None`` when fewer than ``cpus`` are free.

    ``group``: shares are multiples of so many CPUs, at least 1 (the kubelet's cpuGroupSize: the threads of a core
    where whole cores are demanded; that the groups are whole cores is for the caller to check). As with the
    kubelet, a request that is not a multiple of ``group`` or has no even split is packed instead.
    """
    free &= machine.online
    if free.bit_count() < cpus:
        return None
    found = [distribute(layout, free, cpus, group=group, spread=spread) for layout in layouts_of(machine)]
    whole_cores, threads = group > 1 and not spread, "spread" if spread else "pack"
    return better_of(machine, free, found, policy="distributed", full_cores=whole_cores, threads=threads)


def distribute(layout: MachineOrder, free: int, cpus: int, *, group: int, spread: bool) -> int:
    """The same on a prepared layout, where at least ``cpus`` CPUs are free."""
    nodes = [node & free for node in layout.numa_nodes_by_free(free)]
    split = None
    if cpus % group == 0:
        split = split_evenly([node.bit_count() for node in nodes], cpus, group, _fewest(layout, cpus, group))
    if split is None:
        return pack(layout, free, cpus, spread=spread)
    return sum(_share(layout, nodes[i], split.base, groups, group, spread) for i, groups in split.groups.items())


def _fewest(layout: MachineOrder, cpus: int, group: int) -> int:
    """With how many NUMA nodes to begin: 1 where sizes are counted, else what nodes of average size make of it."""
    size = layout.sizes.numa_node
    return 1 if size is None else max(1, -(-cpus // (-(-size // group) * group)))


def _share(layout: MachineOrder, free: int, base: int, groups: int, group: int, spread: bool) -> int:
    """One NUMA node's share: its base, then group by group; each of them packed."""
    taken = pack(layout, free, base, spread=spread)
    for _ in range(groups):
        taken |= pack(layout, free & ~taken, group, spread=spread)
    return taken
