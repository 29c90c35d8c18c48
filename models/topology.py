"""The topology document: one machine, as plain values."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from models.cpuset import MAX_CPU, CPUSet, format_cpuset, parse_cpuset
from models.errors import BadInputError
from models.request import Constraints, CoreType, Name, Requests, check_names

Id = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
NUMAId = Annotated[int, Field(ge=0, le=MAX_CPU, strict=True)]
"""NUMA nodes are listed as CPUs are (``cpuset.mems``), within the same bounds."""

Distance = Annotated[int, Field(ge=0, le=255, strict=True)]
"""An ACPI SLIT entry: one byte, 10 is local."""


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CPU(_Document):
    """One online logical CPU: the kernel's number and the domains it lies in.

    Ids are machine-wide and mean nothing but membership. ``l3`` is ``None`` without a last-level cache,
    ``numa`` is ``None`` where the kernel names no NUMA node.
    """

    cpu: Annotated[int, Field(ge=0, le=MAX_CPU, strict=True)]
    core: Id
    socket: Id = 0
    die: Id | None = None
    cluster: Id | None = None
    numa: NUMAId | None = None
    l3: Id | None = None
    core_type: CoreType = "standard"


class NUMANode(_Document):
    """A NUMA node, with or without CPUs. ``distances``: to each node's id, itself included; empty if unknown."""

    id: NUMAId
    distances: dict[Annotated[int, Field(ge=0)], Distance] = {}


class Device(_Document):
    """A device that requests can be ``near``."""

    name: Name
    pci: str | None = None
    pci_root: str | None = None
    numa: NUMAId | None = None
    local_cpus: CPUSet | None = None


class Topology(_Document):
    """A machine: its online CPUs, NUMA nodes, devices, and what is reserved, held and requested on it.

    Raises ``ValidationError`` on a CPU given twice, a core that lies in two sockets, NUMA nodes, L3s, dies or
    core types, an unknown NUMA node, a missing distance, a reserved or held CPU that is not online or is given
    twice, and unknown keys.
    """

    api_version: Literal["cpusat/v1"] = Field(default="cpusat/v1", alias="apiVersion")
    kind: Literal["Topology"] = "Topology"
    name: str = Field(default="", max_length=253)
    cpus: Annotated[tuple[CPU, ...], FailFast(), Field(min_length=1, max_length=MAX_CPU + 1)]
    numa_nodes: tuple[NUMANode, ...] = Field(default=(), max_length=4096)
    devices: tuple[Device, ...] = Field(default=(), max_length=4096)
    reserved: CPUSet = frozenset()
    held: dict[Name, CPUSet] = {}
    requests: Requests = ()
    constraints: Constraints = ()

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

    @model_validator(mode="after")
    def _is_one_machine(self) -> Self:
        _once((cpu.cpu for cpu in self.cpus), "CPU")
        _once((node.id for node in self.numa_nodes), "NUMA node")
        _once((device.name for device in self.devices), "device")
        for what in ("socket", "numa", "l3", "die", "cluster", "core_type"):
            _cores_lie_in_one(self.cpus, what)
        self._numa_nodes_are_listed()
        self._distances_are_complete()
        self._taken_cpus_are_online()
        check_names(self.requests, self.constraints)
        return self

    def _numa_nodes_are_listed(self) -> None:
        listed = {node.id for node in self.numa_nodes}
        for cpu in self.cpus:
            if cpu.numa is not None and cpu.numa not in listed:
                raise ValueError(f"CPU {cpu.cpu} lies in NUMA node {cpu.numa}, which numa_nodes does not list")
        for device in self.devices:
            if device.numa is not None and device.numa not in listed:
                raise ValueError(
                    f"device {device.name!r} lies in NUMA node {device.numa}, which numa_nodes does not list"
                )

    def _distances_are_complete(self) -> None:
        listed = {node.id for node in self.numa_nodes}
        if not any(node.distances for node in self.numa_nodes):
            return
        for node in self.numa_nodes:
            if missing := listed - node.distances.keys():
                raise ValueError(f"NUMA node {node.id} has no distance to NUMA node {min(missing)}")
            if unknown := node.distances.keys() - listed:
                raise ValueError(f"NUMA node {node.id} has a distance to {min(unknown)}, which is not listed")

    def _taken_cpus_are_online(self) -> None:
        online, owners = self.online, dict.fromkeys(self.reserved, "reserved")
        _are_online(self.reserved, online, "reserved")
        for claim, cpus in self.held.items():
            _are_online(cpus, online, f"held by {claim!r}")
            for cpu in cpus:
                if cpu in owners:
                    raise ValueError(f"CPU {cpu} is held by {claim!r} and is {owners[cpu]} too")
            owners.update(dict.fromkeys(cpus, f"held by {claim!r}"))

    @property
    def online(self) -> frozenset[int]:
        """All CPUs of the machine that the kernel has up."""
        return frozenset(cpu.cpu for cpu in self.cpus)

    @property
    def allocatable(self) -> frozenset[int]:
        """Online minus reserved."""
        return self.online - self.reserved

    @property
    def free(self) -> frozenset[int]:
        """Allocatable minus held."""
        return self.allocatable.difference(*self.held.values())

    def local_cpus(self, near: str) -> frozenset[int]:
        """Online CPUs that are local to a device's name, or to the NUMA nodes of a CPU list.

        Raises ``BadInputError`` when it is neither, or when the device does not say where it is.
        """
        device = next((device for device in self.devices if device.name == near), None)
        if device is not None and device.local_cpus is not None:
            return device.local_cpus & self.online
        if device is not None and device.numa is None:
            raise BadInputError(f"device {near!r} has neither local_cpus nor numa", place="near")
        named = self.cpus_named(near) if device is None else frozenset()
        nodes = {cpu.numa for cpu in self.cpus if cpu.cpu in named} if device is None else {device.numa}
        return frozenset(cpu.cpu for cpu in self.cpus if cpu.numa in nodes)

    def cpus_named(self, cpu_list: str) -> frozenset[int]:
        """The CPUs of a list that a request is to be near. Raises ``BadInputError`` unless they are online."""
        try:
            named = parse_cpuset(cpu_list)
        except ValueError:
            known = ", ".join(device.name for device in self.devices) or "none"
            reason = f"{cpu_list!r} is neither a device of this machine ({known}) nor a CPU list"
            raise BadInputError(reason, place="near") from None
        if not named or named - self.online:
            raise BadInputError(f"{cpu_list!r} must name CPUs that are online", place="near")
        return named

    def to_json(self) -> str:
        """The document as text, one CPU a line."""
        return _one_item_a_line(self.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def _once(values: Iterable[int | str], what: str) -> None:
    seen: set[int | str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value} is given twice")
        seen.add(value)


def _cores_lie_in_one(cpus: Iterable[CPU], what: str) -> None:
    first: dict[int, CPU] = {}
    domain_of: Callable[[CPU], Any] = lambda cpu: getattr(cpu, what)  # noqa: E731
    for cpu in cpus:
        other = first.setdefault(cpu.core, cpu)
        if domain_of(other) != domain_of(cpu):
            word = {"numa": "NUMA node", "l3": "L3", "core_type": "core type"}.get(what, what)
            raise ValueError(
                f"core {cpu.core} lies in two {word}s: CPU {other.cpu} in {domain_of(other)}, "
                f"CPU {cpu.cpu} in {domain_of(cpu)}"
            )


def _are_online(cpus: frozenset[int], online: frozenset[int], what: str) -> None:
    if missing := cpus - online:
        raise ValueError(f"CPUs {format_cpuset(missing)} are {what} but not online")


def _one_item_a_line(document: dict[str, Any]) -> str:
    import json

    head = {"apiVersion": "cpusat/v1", "kind": "Topology"} | document
    lines = []
    for key, value in head.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n    ".join(json.dumps(item) for item in value)
            lines.append(f"  {json.dumps(key)}: [\n    {rows}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
