"""What speed is measured on: machines that grow along one axis at a time, and the catalog."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.instances import OCCUPANCIES, prepared
from topologies import catalog

NPS4 = "socket:2 numa:4 l3:2 core:8 cpu:2"
"""256 CPUs on 8 NUMA nodes: the machine that series about something else run on."""

LARGE = "socket:2 numa:16 l3:2 core:8 cpu:2"
"""1,024 CPUs on 32 NUMA nodes, interchangeable within their socket."""

MOST_CPUS, MOST_NUMA_NODES = 512, 16
"""The largest catalog machine that the targets of speed speak of."""


@dataclass(frozen=True)
class Point:
    """One place on an axis: its value there, the machine, so many requests a claim, and who is asked."""

    series: str
    at: int | str
    machine: str
    engines: tuple[str, ...] = ("greedy", "auto", "cpsat")
    requests: int = 1
    occupancies: tuple[str, ...] = ()


def _grown(cpus: int) -> str:
    """So many CPUs on 8 NUMA nodes, with L3s of at most 8 cores."""
    cores = cpus // 16
    return f"socket:2 numa:4 l3:{max(1, cores // 8)} core:{min(cores, 8)} cpu:2"


def _divided(nodes: int) -> str:
    """512 CPUs in 64 L3s on so many NUMA nodes."""
    sockets = min(2, nodes)
    return f"socket:{sockets} numa:{nodes // sockets} l3:{64 // nodes} core:4 cpu:2"


def by_cpus() -> list[Point]:
    """16 to 1,024 CPUs on 8 NUMA nodes."""
    return [Point("cpus", cpus, _grown(cpus)) for cpus in (16, 32, 64, 128, 256, 512, 1024)]


def by_numa_nodes() -> list[Point]:
    """1 to 64 NUMA nodes of 512 CPUs in 64 L3s."""
    return [Point("numa", nodes, _divided(nodes)) for nodes in (1, 2, 4, 8, 16, 32, 64)]


def by_l3s() -> list[Point]:
    """8 to 256 L3s of 512 CPUs on 8 NUMA nodes."""
    machine = "socket:2 numa:4 l3:{} core:{} cpu:2"
    return [Point("l3", 8 * each, machine.format(each, 32 // each)) for each in (1, 2, 4, 8, 16, 32)]


def by_requests() -> list[Point]:
    """1 to 8 requests solved together, on 256 CPUs."""
    return [Point("requests", count, NPS4, ("greedy", "auto"), count) for count in (1, 2, 4, 8)]


def by_occupancy() -> list[Point]:
    """Each way in which CPUs may be held, on 256 CPUs."""
    return [Point("occupancy", name, NPS4, occupancies=(name,)) for name in OCCUPANCIES]


def beside_plain() -> list[Point]:
    """16 to 512 CPUs on 8 NUMA nodes, for the plain model too."""
    sizes = (16, 32, 64, 128, 256, 512)
    return [_with_plain(cpus, _grown(cpus)) for cpus in sizes]


def beside_plain_catalog() -> list[Point]:
    """Every catalog machine of 32 CPUs or more, for the plain model too."""
    return [_with_plain(name, name) for name in _catalog() if _cpus(name) >= 32]


def _with_plain(at: int | str, machine: str) -> Point:
    return Point("plain", at, machine, ("auto", "plain"), occupancies=("free", "fragments", "threads"))


def of_catalog() -> list[Point]:
    """The catalog machines that the targets are about, and the large synthetic one."""
    return [Point("catalog", name, name, ("greedy", "auto")) for name in (*_catalog(), LARGE)]


def _catalog() -> list[str]:
    return [
        name
        for name in catalog.names()
        if _cpus(name) <= MOST_CPUS and len(prepared(name).machine.numa_nodes) <= MOST_NUMA_NODES
    ]


def _cpus(machine: str) -> int:
    return prepared(machine).machine.online.bit_count()


def thinned(points: Iterable[Point]) -> list[Point]:
    """Every third point, and none above 512 CPUs: enough to see that all of it runs."""
    return [point for point in list(points)[::3] if _cpus(point.machine) <= MOST_CPUS]


@dataclass(frozen=True)
class Series:
    """An axis: what its tables are called, its unit, its points, and how many instances each point is given."""

    title: str
    axis: str
    points: Callable[[], list[Point]]
    sets: int


SERIES = {
    "catalog": Series("every machine", "machine", of_catalog, 18),
    "cpus": Series("CPUs, on 8 NUMA nodes", "CPUs", by_cpus, 9),
    "numa": Series("NUMA nodes, of 512 CPUs", "NUMA nodes", by_numa_nodes, 6),
    "l3": Series("L3s, of 512 CPUs on 8 NUMA nodes", "L3s", by_l3s, 6),
    "requests": Series("requests together, on 256 CPUs", "requests", by_requests, 4),
    "occupancy": Series("occupancies, of 256 CPUs", "held", by_occupancy, 9),
    "plain": Series("beside a plain model", "CPUs", beside_plain, 3),
}
"""What a run measures, in this order. Fewer instances where solves run into their time limit."""
