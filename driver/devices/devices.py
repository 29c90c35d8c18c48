"""The node's CPUs as devices: one per NUMA node, per socket or for the machine, or one per CPU.

Names, attributes and capacity are those of dra-driver-cpu, so that its DeviceClasses and claims keep working.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from driver.config import Config
from driver.devices.attributes import Machine
from driver.devices.device import Device
from driver.devices.grouped import grouped
from driver.devices.individual import individual
from driver.ledger.entry import Shown
from driver.node import NodeCPUs
from models import Topology


@dataclass(frozen=True)
class DeviceMap:
    """The devices of a node by name."""

    devices: tuple[Device, ...]
    topology: Topology

    @cached_property
    def _by_name(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    def cpus(self, device: str) -> frozenset[int] | None:
        """The CPUs of a device, ``None`` if there is none of this name."""
        found = self._by_name.get(device)
        return None if found is None else found.cpus

    def shown(self, names: Iterable[str]) -> dict[str, Shown]:
        """What containers are shown of those of the devices that are here."""
        there = (self._by_name[name] for name in names if name in self._by_name)
        return {each.name: Shown(cpus=each.cpus, attributes=dict(each.attributes)) for each in there}

    def near(self, place: str) -> frozenset[int]:
        """The CPUs near a device's name or a CPU list. Raises ``BadInputError`` if it is neither here."""
        return self.topology.local_cpus(place)

    def split(self, cpus: frozenset[int]) -> frozenset[int]:
        """Of these CPUs, those of cores that are not among them as a whole."""
        split = {cpu.core for cpu in self.topology.cpus if cpu.cpu not in cpus}
        return cpus & {cpu.cpu for cpu in self.topology.cpus if cpu.core in split}

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)


def devices_of(
    config: Config, topology: Topology, node: NodeCPUs, former: Mapping[str, int] | None = None
) -> DeviceMap:
    """The devices of a node.

    ``former``: names that single CPUs have had while claims on them live; these keep their names, whatever has
    become of the reserved CPUs since.
    """
    machine = Machine(topology, node, config.expose_pcie_roots, config.is_external)
    if config.cpu_device_mode == "individual":
        return DeviceMap(tuple(individual(machine, former or {})), topology)
    return DeviceMap(tuple(grouped(machine, config.group_by, whole_cores=bool(config.full_cores))), topology)
