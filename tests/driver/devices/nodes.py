"""Devices of a machine under a configuration."""

from collections.abc import Mapping
from typing import Any

from driver.config import Config
from driver.devices.device import Device
from driver.devices.devices import DeviceMap, devices_of
from driver.devices.slices import NodeRef, slices
from driver.node import NodeCPUs
from models import Device as PCIDevice
from models import Topology, parse_cpuset

NODE = NodeRef("worker-1.example.com", "5d7a1f2e-0000-4000-8000-000000000001")


def devices(
    topology: Topology,
    reserved: str = "",
    *,
    min_shared: int = 0,
    isolated: str = "",
    former: Mapping[str, int] | None = None,
    **settings: Any,
) -> DeviceMap:
    machine = topology.model_copy(update={"reserved": parse_cpuset(reserved)})
    node = NodeCPUs.of(machine, parse_cpuset(isolated), min_shared=min_shared)
    return devices_of(Config.model_validate(settings), topology, node, former)


def numbers(found: DeviceMap) -> dict[str, int]:
    """Single CPUs by their names."""
    return {device.name: min(device.cpus) for device in found}


def published(device: Device, **settings: Any) -> dict[str, Any]:
    (document,) = slices([device], NODE, 1, **settings)
    (found,) = document["spec"]["devices"]
    return dict(found)


def with_roots(topology: Topology, roots: int) -> Topology:
    """With as many network devices near CPU 0, each below a PCIe root of its own, and one that says not where."""
    near = [PCIDevice(name=f"eth{i}", pci_root=f"pci{i:04x}:00", local_cpus=frozenset({0})) for i in range(roots)]
    return topology.model_copy(update={"devices": (*near, PCIDevice(name="lost", pci_root="ffff:00"))})


def without(topology: Topology, cpus: str) -> Topology:
    """With these CPUs offline."""
    gone = parse_cpuset(cpus)
    return topology.model_copy(update={"cpus": tuple(cpu for cpu in topology.cpus if cpu.cpu not in gone)})
