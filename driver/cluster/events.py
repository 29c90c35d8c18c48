"""Kubernetes events on claims: told once, not again and again."""

import logging
import queue
import threading
import time
from collections import OrderedDict
from contextlib import suppress
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
"""Claim's uid, reason, message."""


class Memory:
    """What was told, and when (seconds of a clock). Of very much only the newest is remembered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[Told, float] = OrderedDict()

    def is_new(self, told: Told, now: float) -> bool:
        """Whether it was not told lately; from now on it was."""
        with self._lock:
            if self._told.get(told, now - QUIET) > now - QUIET:
                return False
            self._told[told] = now
            self._told.move_to_end(told)
            if len(self._told) > MOST_REMEMBERED:
                self._told.popitem(last=False)
            return True

    def forget(self, told: Told) -> None:
        """It did not get through."""
        with self._lock:
            self._told.pop(told, None)


class Events:
    """Implements ``driver.ports.Teller``: events are sent by a thread of ours; those that do not get through
    are logged and dropped, and told again when there is cause again."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node
        self._memory = Memory()
        self._queue: queue.Queue[tuple[Told, Document] | None] = queue.Queue(MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more; what waits is dropped."""
        self._stopping.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def tell(self, claim: ClaimRef, reason: Reason | str, message: str, *, warning: bool = True) -> None:
        """An event on the claim, unless the same was told within the last minutes. Returns at once."""
        text = message if len(message) <= LONGEST else message[: LONGEST - 3] + "..."
        told = (claim.uid, reason, text)
        if not claim.name or not self._memory.is_new(told, time.monotonic()):
            return
        try:
            self._queue.put_nowait((told, self._event(claim, reason, text, warning)))
        except queue.Full:
            self._memory.forget(told)
            log.warning("too many events wait; one on claim %s is dropped", claim)

    def _event(self, claim: ClaimRef, reason: str, message: str, warning: bool) -> Document:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{claim.name[:200].rstrip('-.')}.", "namespace": claim.namespace},
            "involvedObject": {**about, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": DRIVER, "host": self._node},
            "reportingComponent": DRIVER,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _run(self) -> None:
        while (waiting := self._queue.get()) is not None and not self._stopping.is_set():
            told, event = waiting
            try:
                self._api.create_event(event["metadata"]["namespace"], event)
            except RefusedError as error:
                self._memory.forget(told)
                log.warning("no event on claim %s: %s", told[0], error.message)
