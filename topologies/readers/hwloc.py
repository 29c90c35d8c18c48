"""A machine from hwloc XML (``lstopo --of xml``), versions 1, 2 and 3.

Version 1 has ``Socket`` or ``Package``, ``Cache`` with a depth, and NUMA nodes around their cores; since
version 2 a NUMA node hangs beside them and names its CPUs.
"""

from collections.abc import Mapping

from models import BadInputError, Topology
from models.cpuset import MAX_CPU
from models.request import CoreType
from topologies.readers.assemble import CPUFacts, assemble, innermost
from topologies.readers.core_types import by_capacity
from topologies.readers.hwloc_devices import read_devices
from topologies.readers.hwloc_distances import read_distances
from topologies.readers.hwloc_xml import HwlocDocument, HwlocObject, members, parse_bitmap, parse_hwloc_xml

_SOCKETS = ("Package", "Socket")
_CACHE_LEVELS = {"L3Cache": 3, "L4Cache": 4, "L5Cache": 5}
_UNIFIED = "0"
_INTEL_TYPES: Mapping[str, CoreType] = {
    "IntelCore": "performance",
    "IntelAtom": "efficiency",
    "IntelLowPower": "efficiency",
}


def read_hwloc(text: str, *, name: str = "") -> Topology:
    """The machine of the document: its PU objects that are online.

    CPUs outside ``allowed_cpuset`` are part of it: a cgroup binds a process, not the machine. NUMA nodes that
    hwloc invents for machines without NUMA cannot be told from real ones and are kept. Raises
    ``BadInputError`` with the object at fault.
    """
    document = parse_hwloc_xml(text)
    machine = _the_machine(document.root)
    pus = _online_pus(machine)
    online = frozenset(pus)
    nodes = _read_nodes(machine, online)
    numa, types = innermost(nodes), _read_core_types(document, online)
    facts = [_facts_of(pu, cpu, numa.get(cpu), types.get(cpu, "standard")) for cpu, pu in pus.items()]
    return assemble(
        facts,
        name=name,
        numa_ids=nodes,
        distances=read_distances(document, machine),
        devices=read_devices(machine, online, innermost(nodes)),
    )


def _the_machine(root: HwlocObject) -> HwlocObject:
    machines = [found for found in root.walk() if found.type == "Machine"]
    if len(machines) > 1:
        raise BadInputError(f"describes {len(machines)} machines; give one file per machine", place="Machine")
    return root


def _online_pus(machine: HwlocObject) -> dict[int, HwlocObject]:
    online = machine.cpus("online_cpuset")
    found: dict[int, HwlocObject] = {}
    for pu in machine.walk():
        if pu.type != "PU":
            continue
        cpu = pu.number("os_index")
        if cpu is None or cpu > MAX_CPU:
            raise BadInputError(f"PU has no os_index from 0 to {MAX_CPU}", place=pu.place)
        if cpu in found:
            raise BadInputError(f"os_index {cpu} is given to two PUs", place=pu.place)
        if online is None or online >> cpu & 1:
            found[cpu] = pu
    return found


def _facts_of(pu: HwlocObject, cpu: int, numa: int | None, core_type: CoreType) -> CPUFacts:
    around = list(pu.ancestors())
    return CPUFacts(
        cpu=cpu,
        siblings=_nearest(around, "Core") or pu,
        socket=_nearest(around, *_SOCKETS),
        die=_nearest(around, "Die"),
        numa=numa,
        l3=_last_level_cache(around),
        core_type=core_type,
    )


def _nearest(around: list[HwlocObject], *types: str) -> HwlocObject | None:
    return next((found for found in around if found.type in types), None)


def _last_level_cache(around: list[HwlocObject]) -> HwlocObject | None:
    caches = [found for found in around if _cache_level(found) >= 3]
    return max(caches, key=_cache_level, default=None)


def _cache_level(found: HwlocObject) -> int:
    """Level of a unified cache, 0 for anything else. MemCache is memory, not a cache of the CPUs."""
    if found.attributes.get("cache_type", _UNIFIED) not in (_UNIFIED, "Unified"):
        return 0
    return (found.number("depth") or 0) if found.type == "Cache" else _CACHE_LEVELS.get(found.type, 0)


def _read_nodes(machine: HwlocObject, online: frozenset[int]) -> dict[int, frozenset[int]]:
    """Online CPUs that each NUMA node names, else those inside it."""
    nodes: dict[int, frozenset[int]] = {}
    for node in machine.walk():
        if node.type == "NUMANode":
            number = node.number("os_index")
            if number is None or number in nodes:
                raise BadInputError("NUMA node without an os_index of its own", place=node.place)
            mask = node.cpus()
            nodes[number] = _inside(node) & online if mask is None else members(mask, online)
    return nodes


def _inside(node: HwlocObject) -> frozenset[int]:
    return frozenset(pu.number("os_index") or 0 for pu in node.walk() if pu.type == "PU")


def _read_core_types(document: HwlocDocument, online: frozenset[int]) -> Mapping[int, CoreType]:
    """Core types by Intel's names where two show, else by Linux' capacities; hwloc's ranks alone tell nothing."""
    named: dict[int, CoreType] = {}
    capacities: dict[int, int] = {}
    for _, kind in document.extras:
        if kind.tag == "cpukind":
            infos = {info.get("name"): info.get("value", "") for info in kind.iter("info")}
            cpus = members(parse_bitmap(kind.get("cpuset", ""), "cpukind"), online)
            if core_type := _INTEL_TYPES.get(infos.get("CoreType", "")):
                named |= dict.fromkeys(cpus, core_type)
            if infos.get("LinuxCapacity", "").isdecimal():
                capacities |= dict.fromkeys(cpus, int(infos["LinuxCapacity"][:9]))
    if len(set(named.values())) > 1:
        return named
    return by_capacity(capacities) if len(capacities) == len(online) else {}
