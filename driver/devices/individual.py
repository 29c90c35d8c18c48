"""Devices that are single CPUs. Their names say nothing of their numbers, and have to be kept."""

import re
from collections.abc import Iterator, Mapping, Sequence

from driver.devices.attributes import Machine
from driver.devices.device import PREFIX, Device
from models import CPU

_NAME = re.compile(rf"{PREFIX}(\d{{3,6}})", re.ASCII)


def individual(machine: Machine, former: Mapping[str, int]) -> Iterator[Device]:
    """The CPUs that may be allocated, by ``names_of``. Those that stay shared have names too, unused."""
    by_number = {cpu.cpu: cpu for cpu in machine.topology.cpus if cpu.cpu not in machine.node.kept}
    names = {name: cpu for name, cpu in names_of(_in_order(machine), former).items() if cpu in by_number}
    for name, number in sorted(names.items(), key=lambda named: (len(named[0]), named[0])):
        yield Device(name, frozenset({number}), machine.of_cpu(by_number[number]))


def names_of(order: Sequence[int], former: Mapping[str, int]) -> dict[str, int]:
    """Names of CPUs: by their place in the order, or as they were, and new CPUs after all of those."""
    before = {match[1]: cpu for name, cpu in former.items() if (match := _NAME.fullmatch(name))}
    there = frozenset(order)
    kept = {cpu: index for index, cpu in sorted(before.items()) if cpu in there}
    next_index = max(map(int, before), default=-1) + 1
    added = [cpu for cpu in order if cpu not in kept]
    names = {f"{PREFIX}{index}": cpu for cpu, index in kept.items()}
    return names | {f"{PREFIX}{next_index + i:03d}": cpu for i, cpu in enumerate(added)}


def _in_order(machine: Machine) -> list[int]:
    """Siblings side by side, as dra-driver-cpu orders them: cores by their first CPU that is not reserved."""
    cores: dict[int, list[int]] = {}
    for cpu in sorted(machine.topology.cpus, key=_number):
        if cpu.cpu in machine.node.allocatable:
            cores.setdefault(cpu.core, []).append(cpu.cpu)
    return [cpu for siblings in cores.values() for cpu in siblings]


def _number(cpu: CPU) -> int:
    return cpu.cpu
