"""The ledger in memory: who holds which CPUs, and a snapshot of it for readers that cannot wait."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping

from driver.errors import RefusedError
from driver.ledger.entry import Entry, Owner, Snapshot
from driver.ledger.files import Files
from driver.ledger.locks import Locks
from driver.node import NodeCPUs
from models import format_cpuset

log = logging.getLogger(__name__)


class Ledger:
    """Entries by uid. Memory changes under a short lock, files without one; ``snapshot`` is read without waiting.

    An entry is reserved in memory first, so that nobody else is given its CPUs, then written. Who changes a claim
    holds its lock, ``locks.of(uid)``.
    """

    def __init__(self, node: NodeCPUs, files: Files) -> None:
        self.snapshot = Snapshot(node, {})
        self.locks = Locks()
        self._files = files
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._owned: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_owners, name="ledger", daemon=True)

    @classmethod
    def open(cls, node: NodeCPUs, files: Files) -> "Ledger":
        """The ledger as the files have it."""
        ledger, found = cls(node, files), files.read()
        ledger.snapshot = Snapshot(node, found.entries, found.quarantined)
        ledger._writer.start()
        return ledger

    def close(self) -> None:
        """Write what is still to be written."""
        self._owned.put(None)
        if self._writer.is_alive():
            self._writer.join()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change of memory, without a lock held."""
        self._listeners.append(listener)

    def reserve(self, entry: Entry) -> None:
        """Hold the entry's CPUs from now on, in memory, in place of the claim's former entry.

        Raises ``RefusedError``: ``Held`` if another claim holds some of them or they are not allocatable,
        ``NoSharedCPU`` if too few would be left for everyone else.
        """
        with self._lock:
            self._check(entry)
            self._replace({**self.snapshot.entries, entry.uid: entry})
        self._tell()

    def update(self, entry: Entry) -> None:
        """Change what is known of a claim that is there; its CPUs must be the same. Memory only."""
        with self._lock:
            if entry.uid in self.snapshot.entries:
                self._replace({**self.snapshot.entries, entry.uid: entry})
        self._tell()

    def adopt(self, entry: Entry) -> None:
        """Hold CPUs that a running container has already, whatever the rules for new claims are."""
        with self._lock:
            self._replace({**self.snapshot.entries, entry.uid: entry})
        self._tell()

    def rollback(self, uid: str, former: Entry | None) -> None:
        """Put the former entry back, or none. Memory only."""
        with self._lock:
            others = {key: entry for key, entry in self.snapshot.entries.items() if key != uid}
            self._replace(others if former is None else {**others, uid: former})
        self._tell()

    def write(self, uid: str) -> None:
        """Write the claim's entry. Raises ``OSError``."""
        self._files.write(self.snapshot.entries[uid])

    def forget(self, uid: str) -> None:
        """Remove the claim's file, then free its CPUs. Raises ``OSError``; the CPUs then stay held."""
        self._files.remove(uid)
        self.rollback(uid, None)

    def own(self, uid: str, owner: Owner) -> None:
        """Remember the container that carries the claim: in memory at once, on disk soon."""
        with self._lock:
            entry = self.snapshot.entries.get(uid)
            if entry is None or entry.owner == owner:
                return
            self._replace({**self.snapshot.entries, uid: entry.model_copy(update={"owner": owner})})
        self._owned.put(uid)

    def _check(self, entry: Entry) -> None:
        snapshot = self.snapshot
        others = [other for uid, other in snapshot.entries.items() if uid != entry.uid]
        for other in others:
            if clash := entry.cpuset & other.cpuset:
                whose = f"claim {other.namespace}/{other.name}" if other.name else f"claim {other.uid}"
                raise RefusedError("Held", f"CPUs {format_cpuset(clash)} are held by {whose}")
        if clash := entry.cpuset & snapshot.quarantined:
            raise RefusedError(
                "Held", f"CPUs {format_cpuset(clash)} are held by a file of the ledger in quarantine"
            )
        if clash := entry.cpuset - snapshot.node.allocatable:
            raise RefusedError("Held", f"CPUs {format_cpuset(clash)} are reserved or not online")
        held = snapshot.quarantined.union(entry.cpuset, *(other.cpuset for other in others))
        left, least = len(snapshot.node.spare(held)), snapshot.node.min_shared
        if left < least:
            reason = f"{left} CPUs would be left in the shared pool, and {least} must stay (minSharedCPUs)"
            raise RefusedError("NoSharedCPU", reason)

    def _replace(self, entries: Mapping[str, Entry]) -> None:
        self.snapshot = Snapshot(self.snapshot.node, entries, self.snapshot.quarantined)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _write_owners(self) -> None:
        while (uid := self._owned.get()) is not None:
            with self.locks.of(uid):
                entry = self.snapshot.entries.get(uid)
                try:
                    if entry is not None:
                        self._files.write(entry)
                except OSError as error:
                    log.warning("claim %s: its owner could not be written: %s", uid, error)
