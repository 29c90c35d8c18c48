"""What the catalog's documents are made from; ``python -m topologies.catalog.specs`` writes them all.

A machine is its levels, in words of a synthetic description and from the outermost in, its NUMA distances, and
the ways in which it departs from a uniform machine with the numbers that Linux gives CPUs on x86 servers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from models import CPU, Device, Topology
from topologies.synthetic import by_socket, machine, numbered, rows

Edit = Callable[[list[CPU]], list[CPU]]
DistanceRule = Callable[[int, int], int]


@dataclass(frozen=True)
class Spec:
    """One machine. ``distances``: local, same socket, other socket, or a rule from two NUMA nodes' ids.

    ``edits`` act on the CPUs core by core, before they get their numbers. ``devices``: name, PCI address, PCI
    root (may be empty) and NUMA node; they are local to all CPUs of that NUMA node.
    """

    name: str
    levels: str
    distances: tuple[int, int, int] | DistanceRule = (10, 12, 21)
    edits: tuple[Edit, ...] = ()
    compact: bool = False
    empty_nodes: Iterable[int] = ()
    devices: tuple[tuple[str, str, str, int], ...] = field(default=())


def build(spec: Spec) -> Topology:
    """The machine's document."""
    words = (word.partition(":") for word in spec.levels.split())
    cpus = rows({level: int(count) for level, _, count in words})
    for edit in spec.edits:
        cpus = edit(cpus)
    cpus = numbered(cpus, compact=spec.compact)
    rule = by_socket(cpus, *spec.distances) if isinstance(spec.distances, tuple) else spec.distances
    found = machine(cpus, rule, empty_nodes=spec.empty_nodes, name=spec.name)
    devices = tuple(_device(found, *row) for row in spec.devices)
    return found.model_copy(update={"devices": devices})


def _device(found: Topology, name: str, pci: str, pci_root: str, numa: int) -> Device:
    local = frozenset(cpu.cpu for cpu in found.cpus if cpu.numa == numa)
    return Device(name=name, pci=pci, pci_root=pci_root or None, numa=numa, local_cpus=local)


def _each(update: Callable[[CPU], dict[str, object]]) -> Edit:
    return lambda cpus: [cpu.model_copy(update=update(cpu)) for cpu in cpus]


def _clusters_of(cores: int) -> Edit:
    return _each(lambda cpu: {"cluster": cpu.core // cores})


def _without_cores(unwanted: Callable[[int], bool]) -> Edit:
    return lambda cpus: [cpu for cpu in cpus if not unwanted(cpu.core)]


def _sockets_in_turn(cores_per_socket: int) -> Edit:
    """The firmware lists one core of each socket after another: even CPUs in socket 0, odd ones in socket 1."""
    return lambda cpus: sorted(cpus, key=lambda cpu: cpu.core % cores_per_socket)


def _snc2_of_28_cores(cpus: list[CPU]) -> list[CPU]:
    """Sub-NUMA clusters on the 28-core mesh take its columns by turns: 4, 3, 3, 4 cores, and again."""
    second = {4, 5, 6, 10, 11, 12, 13, 18, 19, 20, 24, 25, 26, 27}
    return _each(lambda cpu: {"numa": 2 * cpu.socket + (cpu.core % 28 in second)})(cpus)


def _hybrid(performance: int, efficiency: int) -> Edit:
    """First the performance cores with two CPUs each, then efficiency cores with one, four to a cluster."""

    def edit(cpus: list[CPU]) -> list[CPU]:
        one_thread = [cpu for cpu in cpus if cpu.core < performance or cpu.cpu % 2 == 0]
        small = _each(lambda cpu: {"core_type": "efficiency", "cluster": (cpu.core - performance) // 4})
        big = _each(lambda cpu: {"core_type": "performance"})
        last = performance + efficiency
        return big([cpu for cpu in one_thread if cpu.core < performance]) + small(
            [cpu for cpu in one_thread if performance <= cpu.core < last]
        )

    return edit


def _without_l3(first_core: int) -> Edit:
    return _each(lambda cpu: {"l3": None if cpu.core >= first_core else cpu.l3})


def _matrix(*matrix: tuple[int, ...]) -> DistanceRule:
    return lambda a, b: matrix[a][b]


def _three_links(a: int, b: int) -> int:
    """Eight sockets in a ring, each with a third link to the opposite one: 21 over a link, 31 over two."""
    apart = (a - b) % 8
    return 10 if apart == 0 else 21 if apart in (1, 4, 7) else 31


def _with_gpu_memory(owner: Callable[[int], int], near: int, far: int, cpus: int) -> DistanceRule:
    """NUMA nodes of GPU memory: ``near`` to the CPU node that ``owner`` gives, ``far`` to others, 255 apart."""

    def distance(a: int, b: int) -> int:
        a, b = sorted((a, b))
        if a == b:
            return 10
        if b < cpus:
            return 40
        return 255 if a >= cpus else near if owner(b) == a else far

    return distance


def _power9(a: int, b: int) -> int:
    return 10 if a == b else 40 if max(a, b) <= 8 else 80


_EPYC = (10, 12, 32)
_DGX_A100 = (
    *(("gpu" + str(i), f"0000:{bus}:00.0", "", n) for i, (bus, n) in enumerate(
        (("07", 3), ("0f", 3), ("47", 1), ("4e", 1), ("87", 7), ("90", 7), ("b7", 5), ("bd", 5)))),
    *(("mlx5_" + str(i), f"0000:{bus}:00.0", "", n) for i, (bus, n) in enumerate(
        (("0c", 3), ("12", 3), ("4b", 1), ("54", 1)))),
)  # fmt: skip

SPECS = (
    # AMD EPYC: Rome has 4 cores in an L3, Milan and Genoa up to 8, Bergamo 8, dense Turin 16.
    Spec("2s2n-128c256t-epyc-7742-nps1", "socket:2 numa:1 l3:16 core:4 cpu:2", _EPYC),
    Spec("1s4n-64c128t-epyc-7702p-nps4", "socket:1 numa:4 l3:4 core:4 cpu:2", _EPYC),
    Spec("2s8n-128c256t-epyc-7742-nps4-dgx-a100", "socket:2 numa:4 l3:4 core:4 cpu:2", _EPYC, devices=_DGX_A100),
    Spec("2s2n-128c256t-epyc-7763-nps1", "socket:2 numa:1 l3:8 core:8 cpu:2", _EPYC),
    Spec("2s8n-128c256t-epyc-7763-nps4", "socket:2 numa:4 l3:2 core:8 cpu:2", _EPYC),
    Spec("1s2n-64c128t-epyc-7713p-nps2", "socket:1 numa:2 l3:4 core:8 cpu:2", _EPYC),
    Spec("2s2n-64c128t-epyc-7543-nps1", "socket:2 numa:1 l3:8 core:4 cpu:2", _EPYC),
    Spec("2s2n-192c384t-epyc-9654-nps1", "socket:2 numa:1 l3:12 core:8 cpu:2", _EPYC),
    Spec("2s8n-192c384t-epyc-9654-nps4", "socket:2 numa:4 l3:3 core:8 cpu:2", _EPYC),
    Spec("1s4n-48c96t-epyc-9454p-nps4", "socket:1 numa:4 l3:2 core:6 cpu:2", _EPYC),
    Spec("1s8n-48c96t-epyc-8434p-l3-as-numa", "socket:1 numa:8 l3:1 core:6 cpu:2", _EPYC),
    Spec("1s1n-128c256t-epyc-9754-nps1", "socket:1 numa:1 l3:16 core:8 cpu:2", _EPYC),
    Spec("2s8n-256c512t-epyc-9754-nps4", "socket:2 numa:4 l3:4 core:8 cpu:2", _EPYC),
    Spec("2s4n-256c512t-epyc-9755-nps2", "socket:2 numa:2 l3:8 core:8 cpu:2", _EPYC),
    Spec("1s4n-192c384t-epyc-9965-nps4", "socket:1 numa:4 l3:3 core:16 cpu:2", _EPYC),
    # Intel Xeon: one L3 a socket, over all its sub-NUMA clusters.
    Spec("2s2n-56c112t-xeon-8280", "socket:2 numa:1 l3:1 core:28 cpu:2"),
    Spec("2s4n-56c112t-xeon-8280-snc2", "socket:2 l3:1 numa:2 core:14 cpu:2", (10, 11, 21), (_snc2_of_28_cores,)),
    Spec(
        "2s2n-40c80t-xeon-6230-interleaved", "socket:2 numa:1 l3:1 core:20 cpu:2", edits=(_sockets_in_turn(20),),
        devices=(("ens2f0", "0000:18:00.0", "pci0000:17", 0), ("ens5f0", "0000:af:00.0", "pci0000:ae", 1)),
    ),
    Spec(
        "2s2n-64c128t-xeon-6338n-telco", "socket:2 numa:1 l3:1 core:32 cpu:2", (10, 20, 20),
        devices=(("ens1f0", "0000:17:00.0", "pci0000:16", 0), ("ens6f0", "0000:b1:00.0", "pci0000:b0", 1)),
    ),
    Spec("2s4n-80c160t-xeon-8380-snc2", "socket:2 l3:1 numa:2 core:20 cpu:2", (10, 11, 20)),
    Spec(
        "1s1n-32c64t-xeon-6433n-vran", "socket:1 numa:1 l3:1 core:32 cpu:2",
        devices=(("ens1f0", "0000:16:00.0", "pci0000:15", 0), ("fec0", "0000:38:00.0", "pci0000:37", 0)),
    ),
    Spec("2s2n-112c224t-xeon-8480", "socket:2 numa:1 l3:1 core:56 cpu:2"),
    Spec("2s8n-112c224t-xeon-8480-snc4", "socket:2 l3:1 numa:4 core:14 cpu:2"),
    Spec("2s2n-256c512t-xeon-6980p-hex", "socket:2 numa:1 l3:1 core:128 cpu:2"),
    Spec(
        "2s6n-256c512t-xeon-6980p-snc3", "socket:2 l3:1 numa:3 core:43 cpu:2",
        edits=(_without_cores(lambda core: core % 129 == 128),),
    ),
    Spec("1s2n-86c172t-xeon-6787p-snc2", "socket:1 l3:1 numa:2 core:43 cpu:2"),
    Spec("2s2n-288c288t-xeon-6780e", "socket:2 numa:1 l3:1 core:144", edits=(_clusters_of(4),)),
    Spec("4s4n-240c480t-xeon-8490h", "socket:4 numa:1 l3:1 core:60 cpu:2"),
    Spec("8s8n-224c448t-xeon-8280l", "socket:8 numa:1 l3:1 core:28 cpu:2", _three_links),
    # Arm servers: no SMT; the system-level cache of Altra is not reported as an L3.
    Spec("1s1n-80c80t-altra-q80-30", "socket:1 numa:1 core:80", edits=(_clusters_of(2),)),
    Spec("2s2n-160c160t-altra-q80-30", "socket:2 numa:1 core:80", (10, 20, 20), (_clusters_of(2),)),
    Spec("1s1n-64c64t-graviton3", "socket:1 numa:1 l3:1 core:64"),
    Spec("2s2n-192c192t-graviton4", "socket:2 numa:1 l3:1 core:96", (10, 20, 20)),
    Spec(
        "2s4n-128c128t-kunpeng-920-6426", "socket:2 numa:2 l3:1 core:32",
        _matrix((10, 12, 20, 22), (12, 10, 22, 24), (20, 22, 10, 12), (22, 24, 12, 10)), (_clusters_of(4),),
    ),
    Spec("2s2n-144c144t-grace-superchip", "socket:2 numa:1 l3:1 core:72", (10, 40, 40)),
    Spec(
        "1s1n-72c72t-grace-gh200", "socket:1 numa:1 l3:1 core:72",
        _with_gpu_memory(lambda node: 0, near=80, far=80, cpus=1), empty_nodes=range(1, 9),
        devices=(("gpu0", "0009:01:00.0", "", 0),),
    ),
    Spec(
        "2s2n-144c144t-grace-gb200", "socket:2 numa:1 l3:1 core:72",
        _with_gpu_memory(lambda node: (node - 2) // 16, near=80, far=120, cpus=2), empty_nodes=range(2, 34),
        devices=(("gpu0", "0008:01:00.0", "", 0), ("gpu1", "0009:01:00.0", "", 0),
                 ("gpu2", "0018:01:00.0", "", 1), ("gpu3", "0019:01:00.0", "", 1)),
    ),
    # POWER: siblings are adjacent; NUMA nodes are numbered by chip, GPU memory from 255 down.
    Spec(
        "2s2n-44c176t-power9-ac922", "socket:2 numa:1 l3:11 core:2 cpu:4", _power9,
        (_each(lambda cpu: {"numa": 8 * cpu.socket}),), compact=True, empty_nodes=range(250, 256),
    ),
    Spec("2s4n-40c320t-power10-s1022", "socket:2 numa:2 l3:10 core:1 cpu:8", (10, 20, 40), compact=True),
    # Desktops, laptops and virtual machines.
    Spec("1s1n-20c28t-core-i7-14700", "socket:1 numa:1 l3:1 core:20 cpu:2", edits=(_hybrid(8, 12),), compact=True),
    Spec(
        "1s1n-16c22t-core-ultra-7-155h", "socket:1 numa:1 l3:1 core:16 cpu:2",
        edits=(_hybrid(6, 10), _without_l3(14)), compact=True,
    ),
    Spec("1s1n-8c16t-ryzen-7840u", "socket:1 numa:1 l3:1 core:8 cpu:2"),
    Spec("1s1n-16c32t-ryzen-9950x", "socket:1 numa:1 l3:2 core:8 cpu:2"),
    Spec("1s1n-64c128t-threadripper-7980x", "socket:1 numa:1 l3:8 core:8 cpu:2"),
    Spec("1s4n-24c48t-threadripper-3960x-nps4", "socket:1 numa:4 l3:2 core:3 cpu:2", _EPYC),
    Spec("1s1n-4c4t-vm", "socket:1 core:4"),
    Spec("1s1n-4c8t-vm", "socket:1 numa:1 l3:1 core:4 cpu:2", compact=True),
    Spec("8s1n-8c8t-vm-socket-per-cpu", "numa:1 socket:8 l3:1 core:1"),
)  # fmt: skip

if __name__ == "__main__":
    for spec in SPECS:
        Path(__file__).with_name(f"{spec.name}.json").write_text(build(spec).to_json(), encoding="utf-8")
