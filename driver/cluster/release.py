"""Frees the CPUs of claims that are gone, when nobody has told us so: the kubelet may have been away too."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from driver.cluster.api import Api
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.names import DRIVER
from driver.ports import ClaimRef, Document, Runtime

log = logging.getLogger(__name__)

PERIOD, PATIENCE = 60.0, 300.0
"""Seconds between two looks, and how long a claim must have been gone and without a container all the time."""


class Releaser:
    """A thread that looks at the ledger's claims. ``release`` is the driver's unprepare."""

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        runtime: Runtime,
        node: str,
        release: Callable[[ClaimRef], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._ledger, self._runtime, self._node = api, ledger, runtime, node
        self._release, self._clock = release, clock
        self._gone_since: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="release", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()

    def look(self) -> None:
        """Release what has been gone for long enough. Raises ``RefusedError`` if the API server is away."""
        entries = dict(self._ledger.snapshot.entries)
        self._name_adopted(entries)
        gone = {uid for uid, entry in entries.items() if self._is_gone(entry) and not self._runtime.carries(uid)}
        now = self._clock()
        self._gone_since = {uid: self._gone_since.get(uid, now) for uid in gone}
        for uid, since in list(self._gone_since.items()):
            if now - since >= PATIENCE:
                log.warning("claim %s is gone and no container carries it: its CPUs are freed", uid)
                self._release(ClaimRef(uid, entries[uid].namespace, entries[uid].name))

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD):
            try:
                self.look()
            except RefusedError as error:
                log.warning("claims could not be looked at: %s", error.message)

    def _name_adopted(self, entries: dict[str, Entry]) -> None:
        """Learn whose the claims are that were taken over from another driver."""
        nameless = {uid for uid, entry in entries.items() if entry.adopted and not entry.name}
        for document in self._api.claims() if nameless else ():
            metadata = document.get("metadata") or {}
            uid = metadata.get("uid")
            if uid in nameless:
                told = {
                    "namespace": str(metadata.get("namespace", "")),
                    "name": str(metadata.get("name", "")),
                    "pods": frozenset(_pods(document)),
                }
                entries[uid] = entries[uid].model_copy(update=told)
                self._ledger.update(entries[uid])

    def _is_gone(self, entry: Entry) -> bool:
        if not entry.name:
            return True  # The list of all claims has just been looked through for its uid.
        document = self._api.get(entry.namespace, entry.name)
        if document is None or (document.get("metadata") or {}).get("uid") != entry.uid:
            return True
        return not any(_is_here(result, self._node) for result in _results(document))


def _results(document: Document) -> list[Any]:
    status = document.get("status") or {}
    devices = (status.get("allocation") or {}).get("devices") or {}
    return list(devices.get("results") or [])


def _is_here(result: Any, node: str) -> bool:  # noqa: ANN401 - whatever the server said
    return isinstance(result, dict) and result.get("driver") == DRIVER and result.get("pool") == node


def _pods(document: Document) -> Iterator[str]:
    for consumer in (document.get("status") or {}).get("reservedFor") or []:
        if (
            isinstance(consumer, dict)
            and consumer.get("resource") == "pods"
            and isinstance(consumer.get("uid"), str)
        ):
            yield consumer["uid"]
