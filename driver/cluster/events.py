"""Kubernetes events on claims. The same one counts up instead of being told again, as Kubernetes' own do."""

import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from driver.cluster.api import Api, ServerError
from driver.errors import Reason, RefusedError
from driver.names import DRIVER
from driver.ports import ClaimRef, Document

log = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds between two messages to the server about the same event; what happens meanwhile is counted."""

QUIET = 600.0
"""Seconds in which the same is not told again where the server does not let us count up."""

WARMING = 2.0
"""Seconds after which we try once more what we are not allowed: an API server that has just begun learns of our
role a moment later."""

MOST_WAITING, MOST_REMEMBERED = 1000, 10_000
LONGEST = 1024
"""Characters of a message, the API's own limit."""

FORBIDDEN, NOT_FOUND = 403, 404
NOT_PATCHED = (FORBIDDEN, 405, 415)

Told = tuple[str, str, str]
"""Claim's uid, reason, message."""


@dataclass
class Record:
    """An event that was told: how often and since when, when the server was last told (seconds of a clock), and
    what it is called there (empty: not known yet)."""

    count: int
    first: str
    sent: float
    name: str = ""


class Memory:
    """What was told. Of very much only the newest is remembered. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[Told, Record] = OrderedDict()

    def count(self, told: Told, now: float, moment: str, pause: float) -> bool:
        """It has happened once more, at this moment. Whether it is time to tell the server, not earlier than
        ``pause`` seconds after the last time."""
        with self._lock:
            record = self._told.setdefault(told, Record(0, moment, -math.inf))
            record.count += 1
            if now < record.sent + pause:
                return False
            record.sent = now
            self._told.move_to_end(told)
            if len(self._told) > MOST_REMEMBERED:
                self._told.popitem(last=False)
            return True

    def of(self, told: Told, moment: str) -> Record:
        """What is known of it."""
        with self._lock:
            return self._told.get(told) or Record(1, moment, 0.0)

    def fail(self, told: Told) -> None:
        """It did not get through: the next one is told at once."""
        with self._lock:
            if (record := self._told.get(told)) and record.name:
                record.sent = -math.inf
            else:
                self._told.pop(told, None)


class Events:
    """Implements ``driver.ports.Teller``: events are sent by a thread of ours; those that do not get through
    are logged and dropped, and told again when there is cause again."""

    def __init__(self, api: Api, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._node, self._clock = api, node, clock
        self._memory = Memory()
        self._no_counting_until = clock()
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
        """An event on the claim, or one more of the same. Returns at once."""
        text = message if len(message) <= LONGEST else message[: LONGEST - 3] + "..."
        told, moment = (claim.uid, reason, text), _moment()
        if not claim.name or not self._memory.count(told, self._clock(), moment, self._pause()):
            return
        try:
            self._queue.put_nowait((told, self._event(claim, reason, text, warning, moment)))
        except queue.Full:
            self._memory.fail(told)
            log.warning("too many events wait; one on claim %s is dropped", claim)

    def _pause(self) -> float:
        return PAUSE if self._may_count() else QUIET

    def _may_count(self) -> bool:
        return self._clock() >= self._no_counting_until

    def _event(self, claim: ClaimRef, reason: str, message: str, warning: bool, moment: str) -> Document:
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
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }

    def _run(self) -> None:
        while (waiting := self._queue.get()) is not None and not self._stopping.is_set():
            told, event = waiting
            try:
                self._send(told, event)
            except RefusedError as error:
                self._memory.fail(told)
                log.warning("no event on claim %s: %s", told[0], error.message)
            except Exception:
                self._memory.fail(told)
                log.exception("no event on claim %s", told[0])

    def _send(self, told: Told, event: Document) -> None:
        """Count up the event, or create it. Raises ``RefusedError``."""
        namespace, record = event["metadata"]["namespace"], self._memory.of(told, event["firstTimestamp"])
        if record.name and self._may_count() and self._counted_up(namespace, record, event["lastTimestamp"]):
            return
        known = {"count": record.count, "firstTimestamp": record.first}
        record.name = self._twice(lambda: self._api.create_event(namespace, {**event, **known}))

    def _counted_up(self, namespace: str, record: Record, moment: str) -> bool:
        """Whether nothing more is to be done: the event has its new count, or we may not count. It is not if the
        server has forgotten the event, as it does after an hour."""
        try:
            patch = {"count": record.count, "lastTimestamp": moment}
            self._twice(lambda: self._api.patch_event(namespace, record.name, patch))
        except ServerError as error:
            if error.code not in (NOT_FOUND, *NOT_PATCHED):
                raise
            if error.code != NOT_FOUND:
                self._no_counting_until = self._clock() + QUIET
                log.info("events are told again and not counted up: %s", error.message)
            return error.code != NOT_FOUND
        return True

    def _twice(self, ask: Callable[[], str]) -> str:
        """What the server says; asked once more if it does not allow it."""
        try:
            return ask()
        except ServerError as error:
            if error.code != FORBIDDEN or self._stopping.wait(WARMING):
                raise
            return ask()


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
