"""Devices as ResourceSlice documents (resource.k8s.io/v1), within the limits of the API."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from driver.devices.device import Capacity, Device, Value
from driver.names import CAPACITY, DRIVER
from driver.ports import Document

MOST_DEVICES, MOST_WITH_LISTS = 128, 64
"""Devices of one slice; fewer where an attribute is a list."""


@dataclass(frozen=True)
class NodeRef:
    """The node that the slices belong to."""

    name: str
    uid: str


def slices(
    devices: Iterable[Device], node: NodeRef, generation: int, *, node_allocatable: bool = False
) -> list[Document]:
    """All slices of the node's pool, of one generation.

    ``node_allocatable``: say how devices count as the node's allocatable CPUs (KEP-5517, from 1.37).
    """
    published = [_device(device, node_allocatable) for device in devices]
    lists = any("strings" in value for each in published for value in each["attributes"].values())
    size = MOST_WITH_LISTS if lists else MOST_DEVICES
    parts = [published[i : i + size] for i in range(0, len(published), size)] or [[]]
    return [_slice(part, node, generation, len(parts)) for part in parts]


def _slice(devices: Sequence[Document], node: NodeRef, generation: int, count: int) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{node.name[:200].rstrip('-.')}-{DRIVER}-", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
        },
    }


def _device(device: Device, node_allocatable: bool) -> Document:
    found: Document = {
        "name": device.name,
        "attributes": {name: attribute(value) for name, value in sorted(device.attributes.items())},
    }
    if device.capacity is not None:
        found["allowMultipleAllocations"] = True
        found["capacity"] = {CAPACITY: _capacity(device.capacity)}
    if node_allocatable:
        found["nodeAllocatableResources"] = {"cpu": {"mapping": _mapping(device)}}
    return found


def attribute(value: Value) -> dict[str, Any]:
    """An attribute's value, as the API has it."""
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"string": value} if isinstance(value, str) else {"strings": list(value)}


def _capacity(capacity: Capacity) -> Document:
    """How much there is, and how much a request may consume; one that names no amount gets all, as it always did.

    Amounts go from one step up by steps. The API wants default and most to be whole steps above the least, and no
    step where only one fits. What live claims have left of a device may be less than a step, and is all theirs.
    """
    step = min(capacity.step, capacity.value)
    most = capacity.value // step * step
    amounts = {"min": str(step), "max": str(most)}
    if 2 * step <= capacity.value:
        amounts["step"] = str(step)
    return {"value": str(capacity.value), "requestPolicy": {"default": str(most), "validRange": amounts}}


def _mapping(device: Device) -> dict[str, str]:
    if device.capacity is None:
        return {"deviceMultiplier": "1"}
    return {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
