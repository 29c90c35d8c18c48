"""What a scheduler makes of published devices: it counts by device, and knows of CPUs nothing else.

Rules of ``k8s.io/dynamic-resource-allocation/structured``: a request takes as much of a device's capacity as its
policy lets it, if that and all that allocations have of the device are no more than its value.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from driver.names import CAPACITY


class Scheduler:
    """``allocated``: CPUs by claim and device, also of devices that are published no more."""

    def __init__(self) -> None:
        self.allocated: dict[str, tuple[str, int]] = {}

    def taken(self, device: str) -> int:
        """What claims have of a device."""
        return sum(cpus for name, cpus in self.allocated.values() if name == device)

    def left(self, device: dict[str, Any]) -> int:
        """Of a device's capacity, or of its one CPU."""
        value = int(device["capacity"][CAPACITY]["value"]) if "capacity" in device else 1
        left = value - self.taken(device["name"])
        assert left >= 0, f"{device['name']} has {-left} CPUs less than claims have of it"
        return left

    def choices(self, slices: Iterable[dict[str, Any]]) -> Iterator[tuple[str, int]]:
        """Devices with amounts that a claim could get of them."""
        for device in (device for each in slices for device in each["spec"]["devices"]):
            left = self.left(device)
            if "capacity" not in device:
                amounts = range(1, 2)
            else:
                policy = device["capacity"][CAPACITY]["requestPolicy"]["validRange"]
                least, most = int(policy["min"]), int(policy["max"])
                amounts = range(least, most + 1, int(policy.get("step", most)))
            yield from ((device["name"], amount) for amount in amounts if amount <= left)
