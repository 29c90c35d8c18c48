"""Devices with capacity: one per NUMA node, per socket, or for the machine."""

from collections.abc import Collection, Iterable, Iterator

from driver.devices.attributes import Machine
from driver.devices.device import PREFIX, Capacity, Device
from models import CPU


def grouped(machine: Machine, group_by: str, *, whole_cores: bool) -> Iterator[Device]:
    """Groups that have something to give. ``whole_cores``: it is the node's rule to give only those."""
    for name, cpus in _groups(machine, group_by).items():
        if capacity := _capacity(machine, cpus, whole_cores):
            numbers = frozenset(cpu.cpu for cpu in cpus)
            yield Device(name, numbers, machine.of_group(cpus, group_by), capacity)


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


def _capacity(machine: Machine, cpus: Iterable[CPU], whole_cores: bool) -> Capacity | None:
    """The CPUs of a group but those that are kept; where whole cores are the rule, those in whole ones."""
    given = [cpu for cpu in cpus if cpu.cpu not in machine.node.kept]
    if not whole_cores:
        return Capacity(len(given)) if given else None
    sizes, mine = _core_sizes(machine.topology.cpus), _core_sizes(given)
    return _of_cores([size for core, size in mine.items() if size == sizes[core]])


def _of_cores(sizes: Collection[int]) -> Capacity | None:
    """What whole cores of these sizes can always give, claim by claim, in steps of the largest."""
    counted = in_steps(sizes, max(sizes, default=1))
    return Capacity(sum(counted), counted[0]) if counted else None


def in_steps(sizes: Iterable[int], step: int) -> list[int]:
    """Sizes of whole cores that together can always give so many CPUs, claim by claim, in steps of this size.

    Cores count if their size divides the step, and that of the larger ones that do. Of others, such as cores of
    SMT4 that have lost a CPU, it cannot be told which amounts they make together.
    """
    counted: list[int] = []
    for size in sorted(sizes, reverse=True):
        if (counted[-1] if counted else step) % size == 0:
            counted.append(size)
    return counted


def _core_sizes(cpus: Iterable[CPU]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cpu in cpus:
        sizes[cpu.core] = sizes.get(cpu.core, 0) + 1
    return sizes
