"""What can be promised of each device now: its capacity, less what is neither free nor a live claim's on it.

The scheduler counts by device: it takes the allocations that name a device off the device's capacity. Of CPUs that
anybody else has it knows nothing: claims on devices of another grouping, files in quarantine, the kubelet's CPU
manager. So capacity is what live claims on the device have, and what can still be given of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from driver.devices.device import Capacity, Device
from driver.devices.grouped import in_steps
from driver.ledger.entry import Snapshot
from models import Topology


@dataclass(frozen=True)
class Offer:
    """The devices of a node, in its ``pool``, and what of them is published. ``whole_cores``: the node's rule."""

    devices: Sequence[Device]
    topology: Topology
    pool: str
    whole_cores: bool = False

    def now(self, snapshot: Snapshot) -> tuple[Device, ...]:
        """The devices that have something to give, or of which a live claim has something.

        A claim that is prepared changes nothing here, if it has its CPUs of its devices as they are now.
        """
        own, free = self._own(snapshot), _givable(snapshot)
        if self._is_single:
            free -= snapshot.node.withheld(snapshot.free)
            return tuple(each for each in self.devices if each.cpus <= free or each.name in own)
        return tuple(self._grouped(snapshot, free, own))

    def named(self, snapshot: Snapshot) -> list[str]:
        """Names of these devices, and of those of other groupings that live claims still go by."""
        return list(dict.fromkeys([*(device.name for device in self.now(snapshot)), *self._own(snapshot)]))

    def _own(self, snapshot: Snapshot) -> Mapping[str, int]:
        """CPUs that live claims have, by device. Until one that was taken over is known better, it is taken to be
        of the devices that its CPUs are of."""
        own: Counter[str] = Counter()
        for entry in snapshot.entries.values():
            for grant in entry.grants:
                own[grant.device] += grant.cpus if grant.pool == self.pool else 0
            if not entry.grants:
                own.update({device.name: len(device.cpus & entry.cpuset) for device in self.devices})
        return +own

    @property
    def _is_single(self) -> bool:
        return any(device.capacity is None for device in self.devices)

    def _grouped(self, snapshot: Snapshot, free: frozenset[int], own: Mapping[str, int]) -> Iterator[Device]:
        parts = [self._part(device, free, own.get(device.name, 0)) for device in self.devices]
        if free and not snapshot.node.withholds:
            parts = _share(parts, snapshot)
        for part in parts:
            if value := part.own + part.givable:
                yield replace(part.device, capacity=Capacity(value, _step(part.device)))

    def _part(self, device: Device, free: frozenset[int], own: int) -> "_Part":
        if not self.whole_cores:
            return _Part(device, len(device.cpus & free), own)
        cores = self._cores[device.name]
        unit = min(in_steps(map(len, cores), _step(device)), default=1)
        sizes = in_steps((len(core) for core in cores if core <= free), _step(device))
        return _Part(device, sum(sizes), own, unit)

    @cached_property
    def _cores(self) -> Mapping[str, Sequence[frozenset[int]]]:
        """By device, its cores that can be given as a whole."""
        cores: dict[int, set[int]] = {}
        for cpu in self.topology.cpus:
            cores.setdefault(cpu.core, set()).add(cpu.cpu)
        whole = [frozenset(cpus) for cpus in cores.values()]
        return {device.name: [core for core in whole if core <= device.cpus] for device in self.devices}


@dataclass(frozen=True)
class Listed:
    """A device by its name."""

    name: str


@dataclass(frozen=True)
class Listing:
    """The devices that there are whenever it is gone through: those that are offered, and of live claims."""

    offer: Offer
    snapshot: Callable[[], Snapshot]

    def __iter__(self) -> Iterator[Listed]:
        return map(Listed, self.offer.named(self.snapshot()))


@dataclass(frozen=True)
class _Part:
    """A device and its CPUs: that are free, or in whole cores that are; that claims on it have; that have to stay.

    ``unit``: CPUs that can only be given together, at least.
    """

    device: Device
    free: int
    own: int
    unit: int = 1
    kept: int = 0

    @property
    def givable(self) -> int:
        """What is left of the free ones."""
        return max(0, self.free - self.kept) // self.unit * self.unit


def _step(device: Device) -> int:
    return device.capacity.step if device.capacity else 1


def _givable(snapshot: Snapshot) -> frozenset[int]:
    """CPUs of which new claims can be given some: none while nothing is prepared, or too few are shared."""
    node = snapshot.node
    if snapshot.foreign.bars or len(node.spare(snapshot.taken)) < node.min_shared:
        return frozenset()
    return snapshot.free - (node.withheld(snapshot.free) if node.withholds else frozenset())


def _share(parts: Iterable[_Part], snapshot: Snapshot) -> list[_Part]:
    """The parts with the CPUs that have to stay shared taken off them: off the device that they were taken off in
    the first place as far as it has so many, then off the largest. Parts of cores stay shared anyway."""
    parts = sorted(parts, key=lambda part: (-part.own - part.free, part.device.name))
    needed = snapshot.node.min_shared - (len(snapshot.free) - sum(part.free for part in parts))
    for most in (lambda part: len(snapshot.node.kept & part.device.cpus), lambda part: part.free):
        for place, part in enumerate(parts):
            taken = max(0, min(needed, most(part), part.givable))
            parts[place] = after = replace(part, kept=part.kept + taken)
            needed -= part.givable - after.givable
    return sorted(parts, key=lambda part: part.device.name)
