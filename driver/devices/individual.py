"""Devices that are single CPUs. Their names say nothing of their numbers, and have to be kept."""

import re
from collections.abc import Iterator, Mapping, Sequence

from driver.devices.attributes import Machine
from driver.devices.device import PREFIX, Device
from models import CPU

_NAME = re.compile(rf"{PREFIX}(\d{{3,6}})", re.ASCII)


def individual(machine: Machine, former: Mapping[str, int]) -> Iterator[Device]:
    """The CPUs that may be allocated, less those that must stay shared, by ``names_of``."""
    by_number = {cpu.cpu: cpu for cpu in machine.topology.cpus}
    names = names_of(_published(machine), former)
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


def _published(machine: Machine) -> list[int]:
    """Siblings side by side, as dra-driver-cpu orders them: cores by their first CPU that is not reserved.

    The last ones that can be shared stay so, if some must; CPUs isolated by the kernel are never shared.
    """
    node = machine.node
    cores: dict[int, list[int]] = {}
    for cpu in sorted(machine.topology.cpus, key=_number):
        if cpu.cpu in node.allocatable:
            cores.setdefault(cpu.core, []).append(cpu.cpu)
    order = [cpu for siblings in cores.values() for cpu in siblings]
    sharable = [cpu for cpu in order if cpu not in node.isolated]
    shared = set(sharable[max(0, len(sharable) - node.min_shared) :])
    return [cpu for cpu in order if cpu not in shared]


def _number(cpu: CPU) -> int:
    return cpu.cpu
