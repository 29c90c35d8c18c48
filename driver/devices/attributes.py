"""Attributes of devices, by the names that DeviceClasses and claims of dra-driver-cpu select on."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from driver.devices.device import Value
from driver.node import NodeCPUs
from models import CPU, Topology, format_cpuset
from models.request import CoreType

log = logging.getLogger(__name__)

Attributes = Mapping[str, Value]

CORE_TYPES: Mapping[CoreType, str] = {"standard": "standard", "performance": "p-core", "efficiency": "e-core"}
NO_L3 = -1
MOST_ROOTS = 36
"""A device has at most 48 values of attributes, and never more than 12 others."""

LONGEST = 64
"""Characters of a text."""


@dataclass(frozen=True)
class Machine:
    """What devices are made from. ``pcie_roots``: say which are near; ``external``: say what another scheduler
    needs to choose CPUs by number."""

    topology: Topology
    node: NodeCPUs
    pcie_roots: bool = False
    external: bool = False

    def of_group(self, cpus: Collection[CPU], group_by: str) -> Attributes:
        """Of CPUs that are one device, which are in the same NUMA node or socket if they are grouped by it."""
        first = min(cpus, key=lambda cpu: cpu.cpu)
        socket: Attributes = {"dra.cpu/socketID": first.socket}
        place = {"numanode": {**_numa(first), **socket}, "socket": socket, "machine": {}}[group_by]
        numbers = frozenset(cpu.cpu for cpu in cpus)
        return {**self._common(numbers), **place, "dra.cpu/numCPUs": len(cpus), **self._for_schedulers(numbers)}

    def of_cpu(self, cpu: CPU) -> Attributes:
        """Of a CPU that is a device."""
        return {
            **self._common(frozenset({cpu.cpu})),
            **_numa(cpu),
            "dra.cpu/socketID": cpu.socket,
            "dra.cpu/cpuID": cpu.cpu,
            "dra.cpu/coreID": cpu.core,
            "dra.cpu/coreType": CORE_TYPES[cpu.core_type],
            "dra.cpu/cacheL3ID": NO_L3 if cpu.l3 is None else cpu.l3,
        }

    def _common(self, cpus: frozenset[int]) -> Attributes:
        roots = self._roots(cpus) if self.pcie_roots else ()
        return {"dra.cpu/smtEnabled": self._smt, **({"resource.kubernetes.io/pcieRoot": roots} if roots else {})}

    def _roots(self, cpus: frozenset[int]) -> tuple[str, ...]:
        """PCIe roots with a device that is local to some of the CPUs; none if they are too many to be listed."""
        roots = [root for root, local in self._local_cpus.items() if not local.isdisjoint(cpus)]
        if len(roots) > MOST_ROOTS:
            log.warning("CPUs %s are local to %d PCIe roots; none are published", format_cpuset(cpus), len(roots))
            return ()
        return tuple(sorted(roots))

    @cached_property
    def _local_cpus(self) -> Mapping[str, frozenset[int]]:
        """By PCIe root, the CPUs that those of its devices are local to which say where they are."""
        found: dict[str, frozenset[int]] = {}
        for device in self.topology.devices:
            if device.pci_root and (device.local_cpus is not None or device.numa is not None):
                local = self.topology.local_cpus(device.name)
                found[device.pci_root] = found.get(device.pci_root, frozenset()) | local
        return found

    @cached_property
    def _smt(self) -> bool:
        return len({cpu.core for cpu in self.topology.cpus}) < len(self.topology.cpus)

    def _for_schedulers(self, cpus: frozenset[int]) -> Attributes:
        """What does not fit into a text is left out."""
        if not self.external:
            return {}
        texts = {"dra.cpu/cpuIDs": format_cpuset(cpus), "dra.cpu/smtLayout": smt_layout(self.topology)}
        return {name: text for name, text in texts.items() if text and len(text) <= LONGEST}


def _numa(cpu: CPU) -> Attributes:
    """The standard attribute, and the two that came before it."""
    names = ("resource.kubernetes.io/numaNode", "dra.cpu/numaNodeID", "dra.net/numaNode")
    return dict.fromkeys(names, cpu.numa or 0)


def smt_layout(topology: Topology) -> str:
    """Which CPUs are siblings, in dra-driver-cpu's notation (its ``docs/dev/smt-layout.md``).

    ``0-7>4;8-9``: CPU 0 and 4, 1 and 5, … are siblings, 8 and 9 have none. Empty where a core has more than two.
    """
    cores: dict[int, list[int]] = {}
    for cpu in topology.cpus:
        cores.setdefault(cpu.core, []).append(cpu.cpu)
    if any(len(cpus) > 2 for cpus in cores.values()):
        return ""
    by_stride: dict[int, list[int]] = {}
    for cpus in cores.values():
        by_stride.setdefault(max(cpus) - min(cpus), []).extend(cpus)
    alone = by_stride.pop(0, [])
    pairs = [f"{format_cpuset(cpus)}>{stride}" for stride, cpus in sorted(by_stride.items())]
    return ";".join([*pairs, format_cpuset(alone)] if alone else pairs)
