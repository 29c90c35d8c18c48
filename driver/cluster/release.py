"""Frees the CPUs of claims that are gone, when nobody has told us so: the kubelet may have been away too."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from driver.cluster.api import Api, at
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.names import DRIVER, is_uid
from driver.ports import ClaimRef, Document, Runtime

log = logging.getLogger(__name__)

PERIOD, PATIENCE = 60.0, 300.0
"""Seconds between two looks, and how long a claim must have been gone and without a container all the time."""


MOST_REFUSALS = 3
"""Claims in a row of which the API server says nothing."""

ENDING = 1.0
"""Seconds that ``stop`` waits. Whatever the thread does later, it frees nothing."""

Release = Callable[[ClaimRef, Callable[[], bool]], bool]
"""``driver.prepare.Preparer.release_if``."""


@dataclass(frozen=True)
class _Sight:
    """A claim as it was when a look began. Another entry, or a touch, means that somebody was told of it since."""

    entry: Entry
    touched: int | None


class Releaser:
    """A thread that looks at the ledger's claims."""

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        runtime: Runtime,
        node: str,
        release: Release,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._ledger, self._runtime, self._node = api, ledger, runtime, node
        self._release, self._clock = release, clock
        self._gone: dict[str, tuple[_Sight, float]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="release", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End it: nothing is freed from now on, for the ledger is another process's soon."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(ENDING)

    def look(self) -> None:
        """Release what has been gone for long enough.

        Raises ``RefusedError`` if the API server does not say of some claims whether they are there: these stay as
        they were. After some in a row it is not asked again in this look.
        """
        touched = self._ledger.touched()
        all_named = self._name_nameless()
        entries = self._ledger.snapshot.entries
        self._gone = {uid: seen for uid, seen in self._gone.items() if uid in entries}
        self._look_at_each(
            _Sight(each, touched.get(each.uid)) for each in entries.values() if each.name or all_named
        )

    def _run(self) -> None:
        refused = 0
        while not self._stopping.wait(PERIOD):
            try:
                self.look()
                refused = 0
            except RefusedError as error:
                # Once is nothing: an API server that has just begun refuses what it is going to allow.
                refused += 1
                level = logging.WARNING if refused > 1 else logging.DEBUG
                log.log(level, "claims could not be looked at: %s", error.message)
            except Exception:
                log.exception("claims could not be looked at")

    def _look_at_each(self, sights: Iterable[_Sight]) -> None:
        refusal, in_a_row = None, 0
        for sight in sights:
            if self._stopping.is_set() or in_a_row >= MOST_REFUSALS:
                break
            try:
                self._look_at(sight)
                in_a_row = 0
            except RefusedError as error:
                refusal, in_a_row = refusal or error, in_a_row + 1
        if refusal is not None:
            raise refusal

    def _look_at(self, sight: _Sight) -> None:
        uid = sight.entry.uid
        if self._runtime.carries(uid) or not self._is_gone(sight.entry):
            self._gone.pop(uid, None)
            return
        now = self._clock()
        known, since = self._gone.get(uid, (sight, now))
        if known != sight:  # It was prepared again meanwhile.
            since = now
        self._gone[uid] = (sight, since)
        if now - since >= PATIENCE:
            self._free(sight)

    def _is_gone(self, entry: Entry) -> bool:
        """Whether the claim does not need its CPUs, as far as the API server knows."""
        if not entry.name:
            return True  # All claims of the cluster have just been looked through for it.
        document = self._api.get(entry.namespace, entry.name)
        if at(document, "metadata", "uid") != entry.uid:
            return True
        results = _items(document, "status", "allocation", "devices", "results")
        return not at(document, "status", "reservedFor") or not any(self._is_here(each) for each in results)

    def _is_here(self, result: object) -> bool:
        return (at(result, "driver"), at(result, "pool")) == (DRIVER, self._node)

    def _free(self, sight: _Sight) -> None:
        entry = sight.entry
        claim = ClaimRef(entry.uid, entry.namespace, entry.name)
        try:
            if self._release(claim, lambda: self._is_unchanged(sight)):
                log.warning("claim %s is gone and no container carries it: its CPUs are free", claim)
        except RefusedError as error:
            log.warning("claim %s could not be released: %s", claim, error.message)

    def _is_unchanged(self, sight: _Sight) -> bool:
        """Whether what the API server said still counts. Asked while nobody else can change the claim: until then
        it may have been prepared again, and a container may have begun."""
        uid = sight.entry.uid
        return (
            not self._stopping.is_set()
            and self._ledger.snapshot.entries.get(uid) is sight.entry
            and self._ledger.touched().get(uid) == sight.touched
            and not self._runtime.carries(uid)
        )

    def _name_nameless(self) -> bool:
        """Learn whose the claims are that were taken over from another driver. Whether all claims were seen: we
        may not be allowed to list them, and the others must not wait for that."""
        nameless = {uid for uid, entry in self._ledger.snapshot.entries.items() if not entry.name}
        try:
            if nameless:
                self._api.claims(nameless, self._name)
        except RefusedError as error:
            log.warning("claims %s are known by their uids alone: %s", ", ".join(sorted(nameless)), error.message)
            return False
        return True

    def _name(self, document: Document) -> None:
        pods = _pods(document)
        uid = str(at(document, "metadata", "uid"))
        told = {
            "namespace": str(at(document, "metadata", "namespace") or ""),
            "name": str(at(document, "metadata", "name") or ""),
            "pods": frozenset(pods),
            "pod_names": pods,
        }
        with self._ledger.locks.of(uid):
            entry = self._ledger.snapshot.entries.get(uid)
            if entry is None or entry.name or self._stopping.is_set():
                return
            self._ledger.update(entry.model_copy(update=told))
            try:
                self._ledger.write(uid)
            except OSError as error:
                log.warning("claim %s: what is known of it now could not be written: %s", uid, error)


def _pods(document: Document) -> dict[str, str]:
    """The pods that the claim is reserved for: names by uid."""
    consumers = [each for each in _items(document, "status", "reservedFor") if at(each, "resource") == "pods"]
    named = [(at(each, "uid"), at(each, "name")) for each in consumers]
    return {
        uid: name if isinstance(name, str) else "" for uid, name in named if isinstance(uid, str) and is_uid(uid)
    }


def _items(document: Document | None, *path: str) -> list[Any]:
    """What a list at a path has in it; nothing where there is something else."""
    found = at(document, *path)
    return found if isinstance(found, list) else []
