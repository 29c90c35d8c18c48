"""One device as it is published."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = int | bool | str | tuple[str, ...]
"""Of an attribute; a tuple is a list of texts."""

PREFIX = "cpudev"


@dataclass(frozen=True)
class Capacity:
    """How many CPUs of a device can be consumed: all in all, and in which steps by one request."""

    value: int
    step: int = 1


@dataclass(frozen=True)
class Device:
    """A device: its CPUs that may be allocated, and what is published of it. Single CPUs have no capacity."""

    name: str
    cpus: frozenset[int]
    attributes: Mapping[str, Value]
    capacity: Capacity | None = None
