"""PCI devices that requests can be near, from ``bus/pci/devices``. A device that cannot be read is left out."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from models import Device
from models.cpuset import parse_cpuset
from topologies.readers.sysfs_tree import Tree, entries, read, read_int

MAX_DEVICES = 4096
NEAR_CLASSES = ("0200", "0207", "0108", "03", "0b40", "12")
"""PCI class codes: Ethernet, InfiniBand, NVMe, display, co-processor, processing accelerator."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ROOT = re.compile(r"/(pci[0-9a-f]{4,8}:[0-9a-f]{2})/", re.ASCII)
_NAMES = ("net/*", "infiniband/*", "nvme/nvme*", "drm/card*", "accel/accel*", "virtio*/net/*")


def read_devices(tree: Tree, online: frozenset[int]) -> tuple[Device, ...]:
    """Devices of the classes that matter, under each name the system gives them, else their PCI address."""
    found: dict[str, Device] = {}
    addresses = (name for name in entries(tree.pci) if _ADDRESS.fullmatch(name))
    for device in islice(_near_devices(tree.pci, addresses, online), MAX_DEVICES):
        found.setdefault(device.name, device)
    return tuple(found.values())


def _near_devices(pci: Path, addresses: Iterable[str], online: frozenset[int]) -> Iterator[Device]:
    for address in addresses:
        if (read(pci / address / "class") or "").removeprefix("0x").startswith(NEAR_CLASSES):
            try:
                yield from _read_device(pci / address, online)
            except (OSError, ValueError):
                continue


def _read_device(path: Path, online: frozenset[int]) -> Iterator[Device]:
    node = read_int(path / "numa_node")
    cpus = read(path / "local_cpulist")
    root = _ROOT.search(str(path.resolve()))
    for name in _names(path) or [path.name]:
        yield Device(
            name=name,
            pci=path.name,
            pci_root=root[1] if root else None,
            numa=node if node is not None and node >= 0 else None,
            local_cpus=None if cpus is None else parse_cpuset(cpus) & online,
        )


def _names(path: Path) -> list[str]:
    return [name.name for pattern in _NAMES for name in sorted(path.glob(pattern))]
