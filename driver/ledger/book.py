"""The ledger in memory: who holds which CPUs, and a snapshot of it for readers that cannot wait."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from types import MappingProxyType

from driver.errors import RefusedError
from driver.ledger.entry import Entry, Owner, Snapshot
from driver.ledger.files import Aside, Files
from driver.ledger.foreign import Foreign
from driver.ledger.locks import Locks
from driver.node import NodeCPUs
from models import format_cpuset

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds before the background writer tries again what the disk did not take."""


class Ledger:
    """Entries by uid. Memory changes under a short lock, files without one; ``snapshot`` is read without waiting.

    An entry is reserved in memory first, so that nobody else is given its CPUs, then written; its file is removed
    first, then it leaves memory. So the disk never gives CPUs to a claim that memory thinks free. Who changes a
    claim holds its lock, ``locks.of(uid)``; ``own`` alone may come at any time.
    """

    def __init__(self, node: NodeCPUs, files: Files) -> None:
        self.snapshot = Snapshot(node, MappingProxyType({}))
        self.locks = Locks()
        self.aside: tuple[Aside, ...] = ()
        self._files = files
        self._lock = threading.Lock()
        self._withheld: dict[str, frozenset[int]] = {}
        self._unwritten: set[str] = set()
        self._listeners: list[Callable[[], None]] = []
        self._wake, self._closed = threading.Event(), threading.Event()
        self._owned: set[str] = set()
        self._touches, self._touched = count(), dict[str, int]()
        self._writer = threading.Thread(target=self._write_owners, name="ledger", daemon=True)

    @classmethod
    def open(cls, node: NodeCPUs, files: Files) -> "Ledger":
        """The ledger as the files have it, whatever has become of its CPUs since (``driver.watch`` tells of that).

        Raises ``BadInputError`` if the folder cannot be read.
        """
        ledger, found = cls(node, files), files.read()
        ledger.aside = found.aside
        ledger._withheld = {each.file.name: each.cpus & node.online for each in found.aside}
        ledger._replace(found.entries)
        ledger._writer.start()
        return ledger

    def close(self) -> None:
        """Write what is still to be written."""
        self._closed.set()
        self._wake.set()
        if self._writer.is_alive():
            self._writer.join()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change of memory but that of owners, without a lock held."""
        self._listeners.append(listener)

    def reserve(self, entry: Entry) -> None:
        """Hold the entry's CPUs from now on, in memory. A claim that holds others has to be forgotten first, lest
        its file still names those when they are somebody else's.

        Raises ``RefusedError``: ``Held`` if another claim holds some of them, the kubelet has given them to a
        container, or they are not allocatable; ``NoSharedCPU`` if too few would be left for everyone else.
        """
        with self._lock:
            self._check_free(entry)
            _check_allocatable(self.snapshot, entry)
            _check_shared(self.snapshot, entry)
            self._put(entry)
        self._tell()

    def adopt(self, entry: Entry) -> None:
        """Hold CPUs that a running container has already, whatever the rules for new claims are.

        Raises ``RefusedError("Held")`` if another claim holds some of them.
        """
        with self._lock:
            self._check_free(entry)
            self._put(entry)
        self._tell()

    def withhold(self, uid: str, cpus: frozenset[int]) -> None:
        """Give nobody these CPUs until the claim is forgotten, which is none of ours but may run on them."""
        with self._lock:
            self._withheld[_of_claim(uid)] = cpus & self.snapshot.node.online
            self._replace(self.snapshot.entries)
        self._tell()

    def set_offline(self, cpus: frozenset[int]) -> None:
        """These CPUs of the node are down now: masks do without them. Claims hold them all the same."""
        node = self.snapshot.node
        if node.offline == cpus:
            return
        with self._lock:
            self._show(replace(self.snapshot, node=replace(node, offline=cpus)))
        self._tell()

    def set_foreign(self, foreign: Foreign) -> None:
        """What the kubelet's CPU manager has given to containers by now."""
        if self.snapshot.foreign == foreign:
            return
        with self._lock:
            self._show(replace(self.snapshot, foreign=foreign))
        self._tell()

    def update(self, entry: Entry) -> None:
        """Change what is known of a claim that is there, but for its CPUs and its owner. Memory only."""
        with self._lock:
            if former := self.snapshot.entries.get(entry.uid):
                kept = {"cpuset": former.cpuset, "owner": former.owner}
                self._put(entry.model_copy(update=kept))
        self._tell()

    def own(self, uid: str, owner: Owner) -> None:
        """Remember the container that carries the claim: in memory at once, on disk soon."""
        with self._lock:
            entry = self.snapshot.entries.get(uid)
            if entry is None or entry.owner == owner:
                return
            self._put(entry.model_copy(update={"owner": owner}))
            self._owned.add(uid)
        self._wake.set()

    def withheld(self) -> list[str]:
        """Claims that are none of ours, and whose CPUs nobody is given (``withhold``)."""
        with self._lock:
            names = list(self._withheld)
        return [name.removeprefix(_of_claim("")) for name in names if name.startswith(_of_claim(""))]

    def give_back(self, uid: str) -> None:
        """End what ``withhold`` began. CPUs that the claim holds by an entry stay held."""
        with self._lock:
            self._withheld.pop(_of_claim(uid), None)
            self._replace(self.snapshot.entries)
        self._tell()

    def touch(self, uid: str) -> None:
        """Remember that somebody was just told that the claim holds its CPUs."""
        with self._lock:
            if uid in self.snapshot.entries:
                self._touched[uid] = next(self._touches)

    def touched(self) -> dict[str, int]:
        """A number for each claim that was touched, another one after each touch."""
        with self._lock:
            return dict(self._touched)

    def stands(self, uid: str) -> bool:
        """Whether the claim's file says what memory does. It is read: somebody may have removed it."""
        entry = self.snapshot.entries.get(uid)
        return entry is not None and uid not in self._unwritten and self._files.stands(entry)

    def write(self, uid: str) -> None:
        """Write the claim's entry. Raises ``OSError``; what its file says is then unknown."""
        with self._lock:
            entry = self.snapshot.entries[uid]
            self._unwritten.add(uid)
        self._files.write(entry)
        with self._lock:
            if self.snapshot.entries.get(uid) is entry:
                self._unwritten.discard(uid)

    def forget(self, uid: str) -> None:
        """Remove the claim's file, then free its CPUs. Raises ``OSError``; the CPUs then stay held."""
        if uid in self.snapshot.entries:
            self._files.remove(uid)
        with self._lock:
            self._withheld.pop(_of_claim(uid), None)
            self._touched.pop(uid, None)
            self._unwritten.discard(uid)
            self._replace({key: entry for key, entry in self.snapshot.entries.items() if key != uid})
        self._tell()

    def unsure(self) -> str | None:
        """Why nobody can say which CPUs are free: claims' files from which their CPUs cannot be read any more."""
        lost = [each for each in self.aside if each.uid and not each.whole]
        return "; ".join(str(each) for each in lost if each.uid not in self.snapshot.entries) or None

    def _check_free(self, entry: Entry) -> None:
        """That nobody else holds the entry's CPUs. A torn file of the claim itself is not somebody else."""
        if not entry.cpuset or entry.uid in self.snapshot.entries:
            raise RefusedError("Defect", f"claim {entry.uid} holds CPUs already, or is to hold none")
        torn = self._withheld.get(f"{entry.uid}.json", frozenset())
        if clash := (entry.cpuset - torn) & self.snapshot.held:
            raise RefusedError("Held", holders(self.snapshot, clash))

    def _put(self, entry: Entry) -> None:
        self._unwritten.add(entry.uid)
        self._replace({**self.snapshot.entries, entry.uid: entry})

    def _replace(self, entries: Mapping[str, Entry]) -> None:
        withheld = frozenset[int]().union(*self._withheld.values())
        self._show(replace(self.snapshot, entries=MappingProxyType(entries), quarantined=withheld))

    def _show(self, changed: Snapshot) -> None:
        self.snapshot = replace(changed, version=self.snapshot.version + 1)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _write_owners(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._write_owned():
                self._closed.wait(PAUSE)
                self._wake.set()
        self._write_owned()

    def _write_owned(self) -> bool:
        """Write the entries whose owner is new. Whether the disk took them."""
        with self._lock:
            owned = tuple(self._owned)
        for uid in owned:
            with self.locks.of(uid):
                try:
                    if uid in self.snapshot.entries and uid in self._unwritten:
                        self.write(uid)
                except OSError as error:
                    log.warning("claim %s: its owner could not be written: %s", uid, error)
                    return False
            with self._lock:
                if uid not in self._unwritten:
                    self._owned.discard(uid)
        return True


def holders(snapshot: Snapshot, cpus: frozenset[int]) -> str:
    """Who holds these CPUs, in words."""
    claims = [entry.title for entry in snapshot.entries.values() if entry.cpuset & cpus]
    others = "the kubelet's CPU manager" if cpus & snapshot.foreign.given else "a file of the ledger in quarantine"
    whose = f"claim {', '.join(sorted(claims)[:5])}" if claims else others
    return f"CPUs {format_cpuset(cpus)} are held by {whose}"


def _of_claim(uid: str) -> str:
    """What CPUs are withheld under that no file of the ledger names."""
    return f"claim {uid}"


def _check_allocatable(snapshot: Snapshot, entry: Entry) -> None:
    if clash := entry.cpuset - snapshot.node.allocatable:
        raise RefusedError("Held", f"CPUs {format_cpuset(clash)} are reserved or not online")
    if clash := entry.cpuset & snapshot.foreign.given:
        raise RefusedError("Held", holders(snapshot, clash))


def _check_shared(snapshot: Snapshot, entry: Entry) -> None:
    node = snapshot.node
    left = len(node.spare(snapshot.taken | entry.cpuset))
    if left < node.min_shared:
        reason = f"{left} CPUs would be left in the shared pool, and {node.min_shared} must stay (minSharedCPUs)"
        raise RefusedError("NoSharedCPU", reason)
