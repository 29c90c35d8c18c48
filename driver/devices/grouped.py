"""Devices with capacity: one per NUMA node, per socket, or for the machine."""

from collections.abc import Iterable, Iterator, Mapping

from driver.devices.attributes import Machine
from driver.devices.device import PREFIX, Capacity, Device
from models import CPU


def grouped(machine: Machine, group_by: str, *, whole_cores: bool) -> Iterator[Device]:
    """Groups that have something to give. ``whole_cores``: it is the node's rule to give only those."""
    groups = _groups(machine, group_by)
    capacities = {name: _capacity(machine, cpus, whole_cores) for name, cpus in groups.items()}
    for name, capacity in _less_shared(machine, capacities).items():
        if capacity.value:
            numbers = frozenset(cpu.cpu for cpu in groups[name])
            yield Device(name, numbers, machine.of_group(groups[name], group_by), capacity)


def _groups(machine: Machine, group_by: str) -> dict[str, list[CPU]]:
    groups: dict[str, list[CPU]] = {}
    for cpu in machine.topology.cpus:
        if cpu.cpu in machine.node.allocatable:
            groups.setdefault(_name(cpu, group_by), []).append(cpu)
    return dict(sorted(groups.items()))


def _name(cpu: CPU, group_by: str) -> str:
    names = {
        "numanode": f"numa{cpu.numa or 0:03d}",
        "socket": f"socket{cpu.socket:03d}",
        "machine": "machine",
    }
    return PREFIX + names[group_by]


def _capacity(machine: Machine, cpus: list[CPU], whole_cores: bool) -> Capacity:
    """All CPUs of the group; where whole cores are the rule, those in whole ones, by the largest core."""
    if not whole_cores:
        return Capacity(len(cpus))
    sizes, mine = _core_sizes(machine.topology.cpus), _core_sizes(cpus)
    whole = [size for core, size in mine.items() if size == sizes[core]]
    return Capacity(sum(whole), max(whole, default=1))


def _core_sizes(cpus: Iterable[CPU]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cpu in cpus:
        sizes[cpu.core] = sizes.get(cpu.core, 0) + 1
    return sizes


def _less_shared(machine: Machine, capacities: Mapping[str, Capacity]) -> dict[str, Capacity]:
    """Publish so many CPUs less as must stay shared, always of the device that has most to give."""
    found = dict(capacities)
    shared = machine.node.min_shared
    while shared > 0 and any(capacity.value for capacity in found.values()):
        name = max(found, key=lambda name: found[name].value)
        most = found[name]
        found[name] = Capacity(max(0, most.value - most.step), most.step)
        shared -= most.step
    return found
