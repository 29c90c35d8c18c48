"""What a node looks like while claims live on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topologies.graph import Domain, Machine


@dataclass(frozen=True)
class Placed:
    """A live claim: its CPUs, what they span beyond the fewest domains possible, and how many cores it has whole.

    ``extra_numa_now``: beyond what was possible when it came; the other spans: beyond an empty machine's.
    """

    mask: int
    extra_numa: int
    extra_numa_now: int
    extra_l3: int
    whole_cores: int


def place(machine: Machine, free: int, mask: int) -> Placed:
    """A claim that takes the mask out of the free CPUs."""
    cpus = mask.bit_count()
    numa = _used(machine.numa_nodes, mask)
    return Placed(
        mask=mask,
        extra_numa=numa - fewest(machine.numa_nodes, machine.online, cpus),
        extra_numa_now=numa - fewest(machine.numa_nodes, free, cpus),
        extra_l3=_used(machine.l3s, mask) - fewest(machine.l3s, machine.online, cpus),
        whole_cores=sum(core.mask & ~mask == 0 for core in machine.cores),
    )


def fewest(domains: Sequence[Domain], free: int, cpus: int) -> int:
    """The fewest domains whose free CPUs are enough; 0 where there are no domains."""
    count = 0
    for room in sorted(((domain.mask & free).bit_count() for domain in domains), reverse=True):
        if cpus <= 0:
            break
        cpus -= room
        count += 1
    return count


def _used(domains: Iterable[Domain], mask: int) -> int:
    return sum(bool(domain.mask & mask) for domain in domains)


STATES = ("split_cores", "free_numa_nodes", "free_l3s", "largest_on_numa", "largest_on_l3")


def state(machine: Machine, free: int, live: Iterable[Placed]) -> tuple[int, ...]:
    """Values of ``STATES``: cores that several claims share or that are partly free, NUMA nodes and L3s that are
    free as a whole, CPUs of the largest claim that would fit one NUMA node, and one L3.
    """
    touched = _used(machine.cores, machine.online & ~free)
    rooms = [[(domain.mask & free).bit_count() for domain in level] for level in (machine.numa_nodes, machine.l3s)]
    return (
        touched - sum(placed.whole_cores for placed in live),
        *(_whole(level, free) for level in (machine.numa_nodes, machine.l3s)),
        *(max(room, default=0) for room in rooms),
    )


def _whole(domains: Iterable[Domain], free: int) -> int:
    return sum(domain.mask & ~free == 0 for domain in domains)
