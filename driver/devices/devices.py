"""The node's CPUs as devices: one per NUMA node, per socket or for the machine, or one per CPU.

Names, attributes and capacity are those of dra-driver-cpu, so that its DeviceClasses and claims keep working.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from driver.config import Config
from driver.node import NodeCPUs
from models import CPU, Topology
from models.request import CoreType

Value = int | bool | str | tuple[str, ...]

CORE_TYPES: dict[CoreType, str] = {"standard": "standard", "performance": "p-core", "efficiency": "e-core"}
PREFIX = "cpudev"
NO_L3 = -1


@dataclass(frozen=True)
class Capacity:
    """How many CPUs of a device can be consumed: all in all, and in which steps by one request."""

    value: int
    step: int = 1


@dataclass(frozen=True)
class Device:
    """A device: its CPUs that may be allocated, and what is published of it. Single CPUs have no capacity."""

    name: str
    cpus: frozenset[int]
    attributes: Mapping[str, Value]
    capacity: Capacity | None = None


@dataclass(frozen=True)
class DeviceMap:
    """The devices of a node by name."""

    devices: tuple[Device, ...]
    _by_name: dict[str, Device] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {device.name: device for device in self.devices})

    def cpus(self, device: str) -> frozenset[int] | None:
        """The CPUs of a device, ``None`` if there is none of this name."""
        found = self._by_name.get(device)
        return None if found is None else found.cpus

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)


def devices_of(
    config: Config, topology: Topology, node: NodeCPUs, former: Mapping[str, int] | None = None
) -> DeviceMap:
    """The devices of a node.

    ``former``: names that single CPUs have had while claims on them live; these keep their names, whatever has
    become of the reserved CPUs since.
    """
    machine = _Machine(topology, node, config.expose_pcie_roots)
    if config.cpu_device_mode == "individual":
        return DeviceMap(tuple(_individual(machine, former or {})))
    return DeviceMap(tuple(_grouped(machine, config)))


@dataclass(frozen=True)
class _Machine:
    topology: Topology
    node: NodeCPUs
    pcie_roots: bool

    def common(self, cpus: frozenset[int]) -> dict[str, Value]:
        """Attributes that every device has."""
        cores = [cpu.core for cpu in self.topology.cpus]
        found: dict[str, Value] = {"dra.cpu/smtEnabled": len(set(cores)) < len(cores)}
        roots = self._roots(cpus) if self.pcie_roots else ()
        return found | ({"resource.kubernetes.io/pcieRoot": roots} if roots else {})

    def _roots(self, cpus: frozenset[int]) -> tuple[str, ...]:
        devices = [device for device in self.topology.devices if device.pci_root]
        near = {str(device.pci_root) for device in devices if self.topology.local_cpus(device.name) & cpus}
        return tuple(sorted(near))


def _numa(numa: int | None) -> dict[str, Value]:
    """The standard attribute, and the two that came before it."""
    names = ("resource.kubernetes.io/numaNode", "dra.cpu/numaNodeID", "dra.net/numaNode")
    return dict.fromkeys(names, numa or 0)


def _grouped(machine: _Machine, config: Config) -> Iterator[Device]:
    groups = {name: cpus for name, cpus in _groups(machine, config.group_by).items() if cpus}
    capacities = {name: _capacity(machine, cpus, whole=bool(config.full_cores)) for name, cpus in groups.items()}
    _keep_shared(capacities, machine.node.min_shared)
    for name, cpus in groups.items():
        capacity = capacities[name]
        allowed = frozenset(cpu.cpu for cpu in cpus)
        if capacity.value:
            attributes = _of_group(cpus, config.group_by) | {"dra.cpu/numCPUs": len(cpus)}
            yield Device(name, allowed, machine.common(allowed) | attributes, capacity)


def _groups(machine: _Machine, group_by: str) -> dict[str, list[CPU]]:
    groups: dict[str, list[CPU]] = {}
    for cpu in machine.topology.cpus:
        if cpu.cpu in machine.node.allocatable:
            groups.setdefault(_group_name(cpu, group_by), []).append(cpu)
    return dict(sorted(groups.items()))


def _group_name(cpu: CPU, group_by: str) -> str:
    names = {
        "numanode": f"numa{cpu.numa or 0:03d}",
        "socket": f"socket{cpu.socket:03d}",
        "machine": "machine",
    }
    return PREFIX + names[group_by]


def _of_group(cpus: Iterable[CPU], group_by: str) -> dict[str, Value]:
    first = min(cpus, key=lambda cpu: cpu.cpu)
    socket: dict[str, Value] = {"dra.cpu/socketID": first.socket}
    return {"numanode": _numa(first.numa) | socket, "socket": socket, "machine": {}}[group_by]


def _capacity(machine: _Machine, cpus: list[CPU], *, whole: bool) -> Capacity:
    """All CPUs of the group; where whole cores are the node's rule, those in whole ones, by the largest core."""
    if not whole:
        return Capacity(len(cpus))
    sizes = _core_sizes(machine.topology.cpus)
    mine = _core_sizes(cpus)
    cores = [size for core, size in mine.items() if size == sizes[core]]
    return Capacity(sum(cores), max(cores, default=1))


def _core_sizes(cpus: Iterable[CPU]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cpu in cpus:
        sizes[cpu.core] = sizes.get(cpu.core, 0) + 1
    return sizes


def _keep_shared(capacities: dict[str, Capacity], shared: int) -> None:
    """Publish that many CPUs less, always of the device that has most to give."""
    while shared > 0 and any(capacity.value for capacity in capacities.values()):
        name = max(capacities, key=lambda name: capacities[name].value)
        most = capacities[name]
        capacities[name] = Capacity(max(0, most.value - most.step), most.step)
        shared -= most.step


def _individual(machine: _Machine, former: Mapping[str, int]) -> Iterator[Device]:
    by_number = {cpu.cpu: cpu for cpu in machine.topology.cpus}
    order = [cpu.cpu for cpu in _by_siblings(machine) if cpu.cpu in machine.node.allocatable]
    for name, number in sorted(individual_names(order, former).items()):
        if number in by_number:
            yield _single(machine, name, by_number[number])


def individual_names(order: list[int], former: Mapping[str, int]) -> dict[str, int]:
    """Names of single CPUs: by their place in the order, or as they were, new CPUs after all of those."""
    if not former:
        return {f"{PREFIX}{index:03d}": cpu for index, cpu in enumerate(order)}
    kept = {name: cpu for name, cpu in former.items() if cpu in order}
    indices = [int(name.removeprefix(PREFIX)) for name in former]
    added = [cpu for cpu in order if cpu not in former.values()]
    return kept | {f"{PREFIX}{max(indices) + 1 + i:03d}": cpu for i, cpu in enumerate(added)}


def _by_siblings(machine: _Machine) -> list[CPU]:
    """CPUs, siblings side by side, cores by their lowest CPU; less those that stay shared."""
    first: dict[int, int] = {}
    for cpu in sorted(machine.topology.cpus, key=lambda cpu: cpu.cpu):
        first.setdefault(cpu.core, cpu.cpu)
    ordered = sorted(machine.topology.cpus, key=lambda cpu: (first[cpu.core], cpu.cpu))
    usable = [cpu for cpu in ordered if cpu.cpu in machine.node.allocatable]
    return usable[: max(0, len(usable) - machine.node.min_shared)]


def _single(machine: _Machine, name: str, cpu: CPU) -> Device:
    own: dict[str, Value] = {
        "dra.cpu/cpuID": cpu.cpu,
        "dra.cpu/coreID": cpu.core,
        "dra.cpu/coreType": CORE_TYPES[cpu.core_type],
        "dra.cpu/cacheL3ID": NO_L3 if cpu.l3 is None else cpu.l3,
        "dra.cpu/socketID": cpu.socket,
    }
    cpus = frozenset({cpu.cpu})
    return Device(name, cpus, machine.common(cpus) | _numa(cpu.numa) | own)
