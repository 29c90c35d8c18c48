"""Slices of a machine, as the driver makes them."""

from collections.abc import Callable
from typing import Any

from driver.config import Config
from driver.devices.devices import devices_of
from driver.devices.slices import NodeRef, slices
from driver.node import NodeCPUs
from topologies import catalog, synthetic


def make_of(
    machine: str = "socket:2 numa:1 core:4 cpu:2", **settings: Any
) -> Callable[[NodeRef, int], list[dict[str, Any]]]:
    """For a machine of the catalog or a synthetic one, and settings of the configuration."""
    topology = catalog.read(machine) if machine in catalog.names() else synthetic.build(machine)
    config = Config.model_validate(settings)
    devices = devices_of(config, topology, NodeCPUs.of(topology))
    mapped = config.publish_node_allocatable_resource_mapping
    return lambda node, generation: slices(devices, node, generation, node_allocatable=mapped)
