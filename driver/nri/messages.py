"""What the driver and the process that answers the container runtime say to each other."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from driver.conditions import Condition
from driver.ledger.entry import Entry, Owner, Snapshot
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from driver.processes import Message
from models import CPUSet

MAX_BYTES = 16 * 2**20
"""Of one message. The largest is a whole ledger: 10 MB for 1,024 claims that 256 pods share each."""

About = Literal["settled", "carries", "names", "alive"]


UNSENT: dict[str, Any] = {
    "fingerprint": "",
    "grants": (),
    "allocations": (),
    "engine": None,
    "pod_names": {},
    "pod_claim": "",
    "shown": {},
}
"""What of an entry only a Prepare needs, or people."""


class Settings(Message):
    """The first message to the process: the runtime's socket, where cgroups are mounted, which lines it logs."""

    nri_socket: Path
    cgroup_root: Path
    log_level: int


class Change(Message):
    """What the ledger has become since the last change that was sent; the first starts from nothing.

    ``node``, ``foreign``: ``None`` if they are as before. ``held``: entries that are new or have changed, without
    what is ``UNSENT``. ``gone``: uids of those that are there no longer.
    """

    version: int
    node: NodeCPUs | None = None
    held: tuple[Entry, ...] = ()
    gone: tuple[str, ...] = ()
    quarantined: CPUSet = frozenset()
    foreign: Foreign | None = None


class Question(Message):
    """What the answer is wanted to. ``timeout``: seconds in which it may still become yes (``settled``)."""

    number: int
    about: About
    uid: str = ""
    timeout: float = Field(default=0.0, ge=0)


class Order(Message):
    """One message to the process, after the settings."""

    change: Change | None = None
    question: Question | None = None


class Answer(Message):
    """To the question of this number."""

    number: int
    yes: bool


class State(Message):
    """How the process fares with the runtime. ``here``: it is connected, and has had the list of containers."""

    here: bool
    conditions: dict[Condition, str] = Field(default_factory=dict)


class Owned(Message):
    """A container carries a claim."""

    uid: str
    owner: Owner


class News(Message):
    """One message from the process. The first has nothing in it but says that it is ready.

    ``acknowledged``: version of the ledger by which the runtime is answered from now on. ``repaired``: containers
    whose masks have been put right. ``look``: uid of a claim whose pods should be read anew. ``suspect``: somebody
    else names CPUs for containers.
    """

    acknowledged: int | None = None
    answer: Answer | None = None
    state: State | None = None
    owned: Owned | None = None
    repaired: int = 0
    look: str = ""
    suspect: bool = False


def change(before: Snapshot | None, now: Snapshot) -> Change:
    """What leads from one snapshot to the other; ``None`` stands for nothing at all."""
    former: Mapping[str, Entry] = before.entries if before else {}
    return Change(
        version=now.version,
        node=None if before and before.node == now.node else now.node,
        held=tuple(_slim(entry) for uid, entry in now.entries.items() if former.get(uid) is not entry),
        gone=tuple(former.keys() - now.entries.keys()),
        quarantined=now.quarantined,
        foreign=None if before and before.foreign == now.foreign else now.foreign,
    )


def changed(before: Snapshot | None, step: Change) -> Snapshot:
    """The snapshot to which the change leads. Raises ``ValueError`` if it does not start from this one."""
    node = step.node or (before.node if before else None)
    if node is None:
        raise ValueError("the first change names no node")
    former: Mapping[str, Entry] = before.entries if before else {}
    entries = {uid: entry for uid, entry in former.items() if uid not in step.gone}
    entries |= {entry.uid: entry for entry in step.held}
    foreign = step.foreign or (before.foreign if before else Foreign())
    return Snapshot(node, MappingProxyType(entries), step.quarantined, step.version, foreign)


def _slim(entry: Entry) -> Entry:
    return entry.model_copy(update=UNSENT)
