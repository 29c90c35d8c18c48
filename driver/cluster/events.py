"""Kubernetes events on claims: told once, not again and again."""

import logging
import queue
import threading
import time
from datetime import UTC, datetime

from driver.cluster.api import Api
from driver.errors import Reason, RefusedError
from driver.names import DRIVER
from driver.ports import ClaimRef, Document

log = logging.getLogger(__name__)

QUIET = 600.0
"""Seconds in which the same is not told of the same claim again."""

MOST_WAITING, MOST_REMEMBERED = 1000, 10_000
LONGEST = 1024
"""Characters of a message, the API's own limit."""

Told = tuple[str, str, str]


class Events:
    """Implements ``driver.ports.Teller``: events are sent by a thread of ours; those that do not get through
    are logged and forgotten."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node
        self._queue: queue.Queue[tuple[ClaimRef, Document] | None] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._told: dict[Told, float] = {}
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more; what waits is dropped."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return

    def tell(self, claim: ClaimRef, reason: Reason | str, message: str, *, warning: bool = True) -> None:
        """An event on the claim, unless the same was told within the last minutes. Returns at once."""
        if not claim.name or self._is_told((claim.uid, reason, message)):
            return
        try:
            self._queue.put_nowait((claim, self._event(claim, reason, message, warning)))
        except queue.Full:
            log.warning("too many events wait; one on claim %s is dropped", claim)

    def _is_told(self, told: Told) -> bool:
        now = time.monotonic()
        with self._lock:
            if self._told.get(told, -QUIET) > now - QUIET:
                return True
            if len(self._told) >= MOST_REMEMBERED:
                self._told = {each: when for each, when in self._told.items() if when > now - QUIET / 2}
            self._told[told] = now
            return False

    def _event(self, claim: ClaimRef, reason: str, message: str, warning: bool) -> Document:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{claim.name[:200]}.", "namespace": claim.namespace},
            "involvedObject": {**about, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "reason": reason,
            "message": message if len(message) <= LONGEST else message[: LONGEST - 3] + "...",
            "type": "Warning" if warning else "Normal",
            "source": {"component": DRIVER, "host": self._node},
            "reportingComponent": DRIVER,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _run(self) -> None:
        while (waiting := self._queue.get()) is not None:
            claim, event = waiting
            try:
                self._api.create_event(claim.namespace, event)
            except RefusedError as error:
                log.warning("no event on claim %s: %s", claim, error.message)
