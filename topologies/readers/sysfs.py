"""A machine from a ``/sys`` tree: this machine's own, or one that was captured.

Files are those of the kernel's ABI documents ``sysfs-devices-system-cpu`` and ``cputopology``.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from models import Topology
from models.request import CoreType
from topologies.readers.assemble import CPUFacts, Key, agree, assemble, innermost
from topologies.readers.core_types import by_capacity
from topologies.readers.sysfs_devices import read_devices
from topologies.readers.sysfs_tree import Tree, entries, locate, numbered, parse_list, read, read_cpus, read_int

Sets = dict[int, frozenset[int]]

_SIBLINGS = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_SOCKETS = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
_PMU_TYPES: dict[str, CoreType] = {
    "cpu_core": "performance",
    "cpu_atom": "efficiency",
    "cpu_lowpower": "efficiency",
}
"""The kernel registers one PMU per core type on Intel's hybrid CPUs; its ``cpus`` file lists them."""


def read_sysfs(directory: Path, *, name: str = "") -> Topology:
    """The machine whose ``/sys`` tree is in the directory (``DIR``, ``DIR/sys``, ``DIR/sys/devices/system/cpu``).

    CPUs that are offline are left out. What the tree does not tell is ``None``: L3s without cache directories,
    NUMA nodes without a node directory. Restrictions of a cgroup or of the kernel command line are not read:
    they bind a process, not the machine. Raises ``BadInputError`` with the path of the file at fault.
    """
    tree = locate(directory)
    online = read_online(tree)
    nodes = _read_nodes(tree, online)
    return assemble(
        _read_facts(tree, online, nodes),
        name=name,
        numa_ids=nodes,
        distances=_read_distances(tree, nodes),
        devices=read_devices(tree, online),
    )


def read_online(tree: Tree) -> frozenset[int]:
    """CPUs that are up: those of ``online`` that have a directory, else those that do not say ``online`` 0.

    Captured trees lack either, CPU 0 and machines without hotplug have no file of their own, and ``online``
    names CPUs without a directory where a tree was cut or CPUs came and went while it was captured.
    """
    present = frozenset(numbered(tree.cpu, "cpu"))
    text = read(tree.cpu / "online")
    if text:
        return present & parse_list(text, tree.cpu / "online")
    return frozenset(cpu for cpu in present if read(tree.cpu / f"cpu{cpu}" / "online") != "0")


def _read_facts(tree: Tree, online: frozenset[int], nodes: Sets) -> Iterable[CPUFacts]:
    siblings = agree(_reported(tree, online, "topology", *_SIBLINGS))
    sockets = _read_sockets(tree, online)
    clusters = agree(_reported(tree, online, "topology", "cluster_cpus_list", "cluster_cpus"))
    l3s = agree(_last_level_caches(tree, online))
    numa, types = innermost(nodes), _read_core_types(tree, online)
    for cpu in sorted(online):
        die = read_int(_topology(tree, cpu) / "die_id")
        yield CPUFacts(
            cpu=cpu,
            siblings=siblings.get(cpu, frozenset({cpu})),
            socket=sockets.get(cpu),
            die=None if die is None or die < 0 else (sockets.get(cpu), die),
            cluster=clusters.get(cpu),
            numa=numa.get(cpu),
            l3=l3s.get(cpu),
            core_type=types.get(cpu, "standard"),
        )


def _topology(tree: Tree, cpu: int) -> Path:
    return tree.cpu / f"cpu{cpu}" / "topology"


def _reported(tree: Tree, online: frozenset[int], inside: str, *files: str) -> Sets:
    found = {cpu: read_cpus(tree.cpu / f"cpu{cpu}" / inside, *files) for cpu in online}
    return {cpu: _restrict(cpus, online) for cpu, cpus in found.items() if cpus}


@lru_cache(maxsize=1024)
def _restrict(cpus: frozenset[int], online: frozenset[int]) -> frozenset[int]:
    return cpus & online


def _read_sockets(tree: Tree, online: frozenset[int]) -> dict[int, Key]:
    """Sockets by the kernel's id, and by the sets of siblings only where ids are missing or negative.

    Ids are right where both are wrong-footed (Haswell cluster-on-die, corrupt masks); POWER7, s390 and SPARC
    have -1 for all.
    """
    ids = {cpu: read_int(_topology(tree, cpu) / "physical_package_id") for cpu in online}
    if all(number is not None and number >= 0 for number in ids.values()):
        return dict(ids)
    return dict(agree(_reported(tree, online, "topology", *_SOCKETS)))


def _last_level_caches(tree: Tree, online: frozenset[int]) -> Sets:
    found: Sets = {}
    for cpu in online:
        shared = _last_level_cache(tree.cpu / f"cpu{cpu}" / "cache")
        if shared is not None:
            # ia64 kernels write an empty mask for a cache that no other CPU shares.
            found[cpu] = _restrict(shared, online) or frozenset({cpu})
    return found


def _last_level_cache(cache: Path) -> frozenset[int] | None:
    """CPUs that share the highest unified cache of level 3 or above; empty if the tree does not say which."""
    best, index = 0, None
    for name in entries(cache):
        level = read_int(cache / name / "level") if name.startswith("index") else None
        if level is not None and level >= max(3, best + 1) and read(cache / name / "type") in ("Unified", None):
            best, index = level, cache / name
    if index is None:
        return None
    return read_cpus(index, "shared_cpu_list", "shared_cpu_map") or frozenset()


def _read_nodes(tree: Tree, online: frozenset[int]) -> Sets:
    """Online CPUs of each NUMA node that is online, nodes without CPUs included."""
    return {node: _cpus_of_node(tree.node / f"node{node}", online) for node in numbered(tree.node, "node")}


def _cpus_of_node(node: Path, online: frozenset[int]) -> frozenset[int]:
    cpus = read_cpus(node, "cpulist", "cpumap")
    if cpus is None:
        # Captured POWER trees keep only the links to the CPUs.
        cpus = frozenset(numbered(node, "cpu"))
    return _restrict(cpus, online)


def _read_distances(tree: Tree, nodes: Iterable[int]) -> dict[int, list[int]]:
    """Rows as the kernel gives them; ``assemble`` drops them unless they are complete."""
    rows = {node: (read(tree.node / f"node{node}" / "distance") or "").split() for node in nodes}
    if not all(text.isdecimal() and len(text) < 9 for row in rows.values() for text in row):
        return {}
    return {node: [int(text) for text in row] for node, row in rows.items()}


def _read_core_types(tree: Tree, online: frozenset[int]) -> Mapping[int, CoreType]:
    """Core types from the PMUs' lists, else from Linux' or ACPI's capacity of each CPU, else none.

    One PMU that covers all CPUs, as on servers, tells nothing.
    """
    listed: dict[int, CoreType] = {}
    for pmu, core_type in _PMU_TYPES.items():
        path = tree.devices / pmu / "cpus"
        listed |= dict.fromkeys(parse_list(read(path) or "", path) & online, core_type)
    if len(set(listed.values())) > 1:
        return listed
    for file in ("cpu_capacity", "acpi_cppc/highest_perf"):
        found = {cpu: read_int(tree.cpu / f"cpu{cpu}" / file) for cpu in online}
        capacities = {cpu: value for cpu, value in found.items() if value is not None}
        if len(capacities) == len(online) and (types := by_capacity(capacities)):
            return types
    return {}
