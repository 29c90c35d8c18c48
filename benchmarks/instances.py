"""Seeded instances: a machine, which of its CPUs are free, and how many are asked for.

Occupancies: ``free`` (all CPUs), ``light`` (a tenth of the cores held), ``fragments`` (whole cores held at
random), ``threads`` (single CPUs held at random), ``blocks`` (runs of cores held), ``skewed`` (NUMA nodes held
unequally).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from models import Topology, from_mask, to_mask
from solver.problem import Prepared
from topologies import catalog, synthetic
from topologies.graph import Machine


@dataclass(frozen=True)
class Instance:
    """One problem: machine, seed, occupancy, free CPUs as a mask, and CPUs asked for."""

    machine: str
    seed: int
    occupancy: str
    free: int
    cpus: int


@lru_cache(maxsize=64)
def prepared(machine: str) -> Prepared:
    """A catalog machine, or one from a synthetic description, prepared for many solves."""
    return Prepared(topology(machine))


def topology(machine: str) -> Topology:
    """The document of a catalog machine or of a synthetic description."""
    return synthetic.build(machine) if synthetic.looks_synthetic(machine) else catalog.read(machine)


def instances(machine: str, count: int, seed: int = 0, occupancies: tuple[str, ...] = ()) -> Iterator[Instance]:
    """So many instances of a machine, occupancies in turn, sizes from 1 CPU to all that are free."""
    names = occupancies or tuple(OCCUPANCIES)
    for number in range(count):
        rng = Random(f"{machine}/{seed}/{number}")
        occupancy = names[number % len(names)]
        free = OCCUPANCIES[occupancy](rng, prepared(machine).machine)
        yield Instance(machine, number, occupancy, free, _size(rng, prepared(machine).machine, free))


def _size(rng: Random, machine: Machine, free: int) -> int:
    """Half of the sizes anything, half of them up to just above whole NUMA nodes, where spans are decided."""
    most = free.bit_count()
    node = max((domain.mask & free).bit_count() for domain in machine.numa_nodes)
    near_nodes = rng.randint(1, max(1, most // max(node, 1))) * node + rng.choice([-1, 0, 1, 2])
    return min(max(rng.choice([rng.randint(1, most), near_nodes]), 1), most)


def _all(rng: Random, machine: Machine) -> int:
    return machine.online


def _cores(share: float) -> Callable[[Random, Machine], int]:
    def occupy(rng: Random, machine: Machine) -> int:
        return _some(sum(core.mask for core in machine.cores if rng.random() >= share), machine)

    return occupy


def _threads(rng: Random, machine: Machine) -> int:
    held = rng.choice([0.2, 0.5, 0.7])
    return _some(to_mask(cpu for cpu in from_mask(machine.online) if rng.random() >= held), machine)


def _blocks(rng: Random, machine: Machine) -> int:
    free, cores = machine.online, machine.cores
    for _ in range(rng.randint(1, 6)):
        first, length = rng.randrange(len(cores)), rng.randint(1, max(1, len(cores) // 6))
        free &= ~sum(core.mask for core in cores[first : first + length])
    return _some(free, machine)


def _skewed(rng: Random, machine: Machine) -> int:
    free = 0
    for node in machine.numa_nodes:
        held = rng.random()
        free |= sum(
            core.mask & node.mask for core in machine.cores if core.mask & node.mask and rng.random() >= held
        )
    return _some(free, machine)


def _some(free: int, machine: Machine) -> int:
    """The free CPUs; all of them rather than none."""
    return free or machine.online


OCCUPANCIES: dict[str, Callable[[Random, Machine], int]] = {
    "free": _all,
    "light": _cores(0.1),
    "fragments": _cores(0.45),
    "threads": _threads,
    "blocks": _blocks,
    "skewed": _skewed,
}
