"""Containers as the runtime shows them, and masks as it is told: between NRI's messages and our values."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from driver.ledger.entry import Owner
from driver.names import VARIABLE
from driver.protos import nri_pb2 as nri
from models import format_cpuset, parse_cpuset

MOST_VARIABLES = 256
"""Variables that are kept of one container. A pod names a few dozen claims at most; who has more is refused."""

ROOM = 3 << 20
"""Bytes of updates in one message. The runtime reads no more than 4 MiB."""


@dataclass(frozen=True)
class Pin:
    """Where a container may run, and where its memory may lie; no ``mems`` means as it is."""

    cpus: frozenset[int]
    mems: frozenset[int] = frozenset()

    def into(self, resources: nri.LinuxResources) -> None:
        """Write it as resources."""
        resources.cpu.cpus, resources.cpu.mems = _text(self.cpus), _text(self.mems)


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


def fitting(updates: Iterable[Update]) -> Iterator[Update]:
    """As many as one message holds. The others are told another time."""
    room = ROOM
    for update in updates:
        size = update.message().ByteSize()
        if size <= room:
            room -= size
            yield update


@dataclass(frozen=True)
class Sight:
    """A container. ``variables``: keys and values of its environment that name claims, as they stand there.

    ``cpus``: what the runtime has noted as its mask, ``None`` if nothing. ``state``: as in a list; what events
    say of it is not to be relied on.
    """

    id: str
    pod_uid: str
    name: str
    sandbox: str = ""
    pod: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    cpus: frozenset[int] | None = None
    cgroup: str = ""
    state: int = nri.CONTAINER_UNKNOWN
    created_at: int = 0

    @property
    def owner(self) -> Owner:
        """The container by names that outlive its restarts."""
        return Owner(pod_uid=self.pod_uid, container=self.name)

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


def cpus_of(resources: nri.LinuxResources) -> frozenset[int] | None:
    """The mask that resources name, if they name one."""
    try:
        return parse_cpuset(resources.cpu.cpus) or None
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _text(cpus: frozenset[int]) -> str:
    """Thousands of containers are told the same pool."""
    return format_cpuset(cpus)
