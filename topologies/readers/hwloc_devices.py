"""PCI devices in hwloc XML that requests can be near; a device that cannot be read is left out."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from models import Device
from topologies.readers.hwloc_xml import HwlocObject, members
from topologies.readers.sysfs_devices import MAX_DEVICES, NEAR_CLASSES

_HOST_BRIDGE = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-[0-9a-f]{2}\]", re.ASCII)
_NAME = re.compile(r"(?!renderD|controlD)\S{1,253}", re.ASCII)
"""Of the names that the kernel's graphics drivers give one card, ``card0`` is enough."""
_IO_TYPES = ("Bridge", "PCIDev", "OSDev", "Misc")


def read_devices(machine: HwlocObject, online: frozenset[int], numa: Mapping[int, int]) -> tuple[Device, ...]:
    """Devices of the classes that matter, under each name the system gives them, else their PCI address."""
    pci = (found for found in machine.walk() if found.type == "PCIDev" and _is_near_class(found))
    found: dict[str, Device] = {}
    for device in islice((d for dev in pci for d in _devices_of(dev, online, numa)), MAX_DEVICES):
        found.setdefault(device.name, device)
    return tuple(found.values())


def _is_near_class(found: HwlocObject) -> bool:
    return found.attributes.get("pci_type", "").startswith(NEAR_CLASSES)


def _devices_of(pci: HwlocObject, online: frozenset[int], numa: Mapping[int, int]) -> Iterator[Device]:
    names = [found.attributes.get("name", "") for found in pci.walk() if found.type == "OSDev"]
    address = pci.attributes.get("pci_busid", "")
    local = _local_cpus(pci, online)
    nodes = {numa.get(cpu) for cpu in local}
    for name in names or [address]:
        if _NAME.fullmatch(name):
            yield Device(
                name=name,
                pci=address,
                pci_root=_root_of(pci),
                numa=next(iter(nodes)) if len(nodes) == 1 else None,
                local_cpus=local,
            )


def _local_cpus(pci: HwlocObject, online: frozenset[int]) -> frozenset[int]:
    mask = next((found.cpus() for found in pci.ancestors() if found.type not in _IO_TYPES), None)
    return online if mask is None else members(mask, online)


def _root_of(pci: HwlocObject) -> str | None:
    bridges = [found for found in pci.ancestors() if found.attributes.get("bridge_type", "").startswith("0-")]
    match = _HOST_BRIDGE.fullmatch(bridges[-1].attributes.get("bridge_pci", "")) if bridges else None
    return f"pci{match[1]}:{match[2]}" if match else None
