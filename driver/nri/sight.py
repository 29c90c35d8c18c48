"""Containers as the runtime shows them, and masks as it is told: between NRI's messages and our values."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from driver.ledger.entry import Owner
from driver.names import VARIABLE
from driver.protos import nri_pb2 as nri
from models import format_cpuset, from_mask, parse_cpuset, to_mask

MOST_VARIABLES = 256
"""Variables that are kept of one container. A pod names a few dozen claims at most; who has more is refused."""

ROOM = 3 << 20
"""Bytes of updates in one message. The runtime reads no more than 4 MiB."""

FRAMING = 40
"""Bytes of an update at most, beside its names and lists."""


@dataclass(frozen=True)
class Pin:
    """Where a container may run, and where its memory may lie, as masks; no ``mems`` means as it is."""

    cpus: int
    mems: int = 0

    def into(self, resources: nri.LinuxResources) -> None:
        """Write it as resources."""
        resources.cpu.cpus, resources.cpu.mems = text_of(self.cpus), text_of(self.mems)

    @property
    def size(self) -> int:
        """Bytes of its lists."""
        return len(text_of(self.cpus)) + len(text_of(self.mems))


@dataclass(frozen=True)
class Update:
    """What the runtime is to change of a container that it has."""

    container: str
    pin: Pin

    def message(self, *, ignore_failure: bool = True) -> nri.ContainerUpdate:
        """As it is sent. A failure that is not ignored fails the event whose reply carries the update."""
        update = nri.ContainerUpdate(container_id=self.container, ignore_failure=ignore_failure)
        self.pin.into(update.linux.resources)
        return update

    @property
    def size(self) -> int:
        """Bytes of its message, at most."""
        return len(self.container.encode()) + self.pin.size + FRAMING


def fitting(updates: Iterable[Update]) -> Iterator[Update]:
    """As many as one message holds. The others are told another time."""
    room = ROOM
    for update in updates:
        if update.size <= room:
            room -= update.size
            yield update


@dataclass(frozen=True)
class Sight:
    """A container. ``variables``: keys and values of its environment that name claims, as they stand there.

    ``cpus``: the mask that the runtime has noted, ``None`` if none. ``state``: as in a list; what events
    say of it is not to be relied on.
    """

    id: str
    pod_uid: str
    name: str
    sandbox: str = ""
    pod: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    cpus: int | None = None
    cgroup: str = ""
    state: int = nri.CONTAINER_UNKNOWN
    created_at: int = 0

    @property
    def owner(self) -> Owner:
        """The container by names that outlive its restarts."""
        return Owner(pod_uid=self.pod_uid, container=self.name)

    @property
    def named(self) -> set[str]:
        """Uids of the claims that it names, rightly or not."""
        return {key.removeprefix(VARIABLE) for key, _ in self.variables}

    def is_of(self, owner: Owner) -> bool:
        """Whether these are its names."""
        return (self.pod_uid, self.name) == (owner.pod_uid, owner.container)

    def replaces(self, other: "Sight") -> bool:
        """Whether it is the same container to Kubernetes: one of the two is a restart of the other."""
        return (self.pod_uid, self.name) == (other.pod_uid, other.name)

    def __str__(self) -> str:
        return f"container {self.name[:80]!r} of pod {self.pod[:320] or self.pod_uid[:80]}"

    @classmethod
    def of(cls, pod: nri.PodSandbox, container: nri.Container) -> "Sight":
        """A container of a message, and its pod."""
        return cls(
            id=container.id,
            pod_uid=pod.uid,
            name=container.name,
            sandbox=pod.id,
            pod=f"{pod.namespace}/{pod.name}",
            variables=variables(container.env),
            cpus=cpus_of(container.linux.resources),
            cgroup=container.linux.cgroups_path,
            state=container.state,
            created_at=container.created_at,
        )


def variables(environment: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """All that name claims, or one more than may. A key may be there twice: the pod's own stands before CDI's."""
    named = dict.fromkeys(each for each in environment if each.startswith(VARIABLE))
    pairs = (each.partition("=") for each in islice(named, MOST_VARIABLES + 1))
    return tuple((key, value) for key, _, value in pairs)


def cpus_of(resources: nri.LinuxResources) -> int | None:
    """The mask that resources name, if they name one."""
    return _mask_of(resources.cpu.cpus)


@lru_cache(maxsize=1024)
def _mask_of(text: str) -> int | None:
    try:
        return to_mask(parse_cpuset(text)) or None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def text_of(mask: int) -> str:
    """A mask as the kernel writes lists. Thousands of containers are told the same pool."""
    return format_cpuset(from_mask(mask))
