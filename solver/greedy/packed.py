"""Packed: the largest whole domains first, what is left from the fullest ones.

Whole sockets and NUMA nodes (the larger kind first), whole or partial L3s if these are preferred, whole cores,
single CPUs. Each step is a function of (layout, free mask, CPUs still needed) that returns the mask it takes.
"""

from collections.abc import Callable, Iterable

from solver.greedy.order import MachineOrder, layouts_of
from solver.greedy.unequal import better_of
from topologies.graph import Machine

Step = Callable[[MachineOrder, int, int], int]


def take_packed(
    machine: Machine, free: int, cpus: int, *, spread: bool = False, prefer_l3: bool = False
) -> int | None:
    """Mask of the CPUs that the kubelet would give, packed; ``None`` when fewer than ``cpus`` are free.

    ``spread`` is the kubelet's distribute-cpus-across-cores: whole cores are not looked for and single CPUs go
    by number. ``prefer_l3`` is its prefer-align-cpus-by-uncorecache.
    """
    free &= machine.online
    if free.bit_count() < cpus:
        return None
    found = [pack(layout, free, cpus, spread=spread, prefer_l3=prefer_l3) for layout in layouts_of(machine)]
    return better_of(machine, free, found, threads="spread" if spread else "pack", prefer_l3=prefer_l3)


def pack(layout: MachineOrder, free: int, cpus: int, *, spread: bool = False, prefer_l3: bool = False) -> int:
    """The same on a prepared layout, where at least ``cpus`` CPUs are free."""
    steps: list[Step] = [_numa_nodes, _sockets] if layout.numa_first else [_sockets, _numa_nodes]
    steps += [_l3s] if prefer_l3 else []
    steps += [_cpus_by_socket] if spread else [_cores, _cpus_by_core]
    taken = 0
    for step in steps:
        if taken.bit_count() == cpus:
            break
        taken |= step(layout, free & ~taken, cpus - taken.bit_count())
    return taken


def _numa_nodes(layout: MachineOrder, free: int, need: int) -> int:
    return _whole(layout.numa_nodes_by_free(free), free, need)


def _sockets(layout: MachineOrder, free: int, need: int) -> int:
    return _whole(layout.sockets_by_free(free), free, need, layout.sizes.socket)


def _cores(layout: MachineOrder, free: int, need: int) -> int:
    return _whole(layout.cores_by_free(free), free, need, layout.sizes.core)


def _l3s(layout: MachineOrder, free: int, need: int) -> int:
    """L3 by L3, the rest from the first that can hold it; whole ones as soon as the need is as large as one."""
    taken, whole_tried = 0, False
    for l3 in layout.l3s_by_free(free):
        if not whole_tried and need >= (layout.sizes.l3 or l3.bit_count()):
            taken, whole_tried = _whole(layout.l3s_by_free(free), free, need), True
        taken |= _part_of_l3(layout, l3, l3 & free & ~taken, need - taken.bit_count())
        if taken.bit_count() == need:
            break
    return taken


def _part_of_l3(layout: MachineOrder, l3: int, free: int, need: int) -> int:
    """Cores of the L3 by id, as many as hold the need when all free: taken if just that many CPUs are free.

    One CPU may be left over where the need is odd; more never, so an L3 with half-free cores may be passed by.
    """
    cores = [core for core in layout.cores[l3] if core & free]
    threads = layout.sizes.core or -(-l3.bit_count() // len(layout.cores[l3]))
    found = free & sum(cores[: -(-need // threads)])
    if need % 2 and threads > 1 and found.bit_count() == need + 1:
        found = lowest(found, need)
    return found if found.bit_count() == need else 0


def _cpus_by_core(layout: MachineOrder, free: int, need: int) -> int:
    return _single(layout.cores_by_free(free), free, need)


def _cpus_by_socket(layout: MachineOrder, free: int, need: int) -> int:
    return _single(layout.sockets_by_free(free), free, need)


def _whole(domains: Iterable[int], free: int, need: int, size: int | None = None) -> int:
    """Whole free domains, one by one, as long as they are no larger than the need."""
    taken = 0
    for domain in domains:
        left = domain & free & ~taken
        if left.bit_count() == (size or domain.bit_count()) and domain.bit_count() <= need - taken.bit_count():
            taken |= left
        if taken.bit_count() == need:
            break
    return taken


def _single(domains: Iterable[int], free: int, need: int) -> int:
    """Free CPUs by number, domain by domain."""
    taken = 0
    for domain in domains:
        taken |= lowest(domain & free & ~taken, need - taken.bit_count())
        if taken.bit_count() == need:
            break
    return taken


def lowest(mask: int, count: int) -> int:
    """The lowest ``count`` CPUs of the mask, or all if it has fewer."""
    left = mask
    for _ in range(min(count, mask.bit_count())):
        left &= left - 1
    return mask ^ left
