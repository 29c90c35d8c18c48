"""What ``kubectl get resourceclaim -o yaml`` shows of a claim: the driver writes ``status.devices`` (KEP-4817).

Each device of ours has the condition ``Ready``, whose reason says why it is false, and data that name the CPUs.
"""

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from driver.cluster.api import Api, ServerError
from driver.errors import Reason, RefusedError
from driver.ledger.entry import Entry, Grant
from driver.names import DRIVER
from driver.ports import ClaimRef, Document
from models import Allocation, format_cpuset

log = logging.getLogger(__name__)

MOST_WAITING, MOST_REMEMBERED = 1000, 4096
"""Claims. Of more of them the oldest are not written, or are written again."""

LARGEST_DATA, LONGEST_MESSAGE = 10 << 10, 1024
"""Bytes of a device's data, the API's own limit; characters of a condition's message."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the next try after one that the API server has not answered, doubled each time."""

FORBIDDEN, FORBIDDEN_PAUSE = 403, 300.0
"""Seconds before the next try where the API server does not allow it."""

ENDING = 1.0
"""Seconds that ``stop`` waits."""


@dataclass(frozen=True)
class Report:
    """What is to be written of a claim. ``ready``: the status of the condition, ``True`` or ``False``."""

    ref: ClaimRef
    ready: str
    reason: str
    message: str
    devices: tuple[Document, ...]

    def document(self, since: str) -> Document:
        """As it is applied. ``since``: when ``ready`` became what it is. The uid keeps it from a claim that has
        taken the place of this one."""
        condition = {
            "type": "Ready",
            "status": self.ready,
            "reason": self.reason,
            "message": self.message[:LONGEST_MESSAGE],
            "lastTransitionTime": since,
        }
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self.ref.name, "namespace": self.ref.namespace, "uid": self.ref.uid},
            "status": {"devices": [{**each, "conditions": [condition]} for each in self.devices]},
        }


def prepared(entry: Entry) -> Report:
    """Of a claim that has its CPUs."""
    ref = ClaimRef(entry.uid, entry.namespace, entry.name)
    devices = tuple({**_key(grant), **_data(entry, grant)} for grant in _distinct(entry.grants))
    return Report(ref, "True", "Prepared", f"CPUs {format_cpuset(entry.cpuset)}", devices)


def refused(ref: ClaimRef, grants: Iterable[Grant], reason: Reason, message: str) -> Report:
    """Of a claim that does not get its CPUs now."""
    return Report(ref, "False", reason, message, tuple(map(_key, _distinct(grants))))


class StatusWriter:
    """Implements ``driver.ports.Reporter``: a thread writes the newest report of each claim.

    Nobody waits for it. What the API server does not answer is tried again, with growing pauses.
    """

    def __init__(self, api: Api, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._api, self._clock = api, clock
        self._waiting: OrderedDict[str, Report] = OrderedDict()
        self._written: OrderedDict[str, tuple[Report, str]] = OrderedDict()
        """By uid, what was written last, and since when it is so."""
        self._changed = threading.Condition()
        self._stopping, self._pause, self._is_forbidden = False, 0.0, False
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; what waits is dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(ENDING)

    def prepared(self, entry: Entry) -> None:
        """The claim has its CPUs. Returns at once."""
        self._put(prepared(entry))

    def refused(self, ref: ClaimRef, grants: Iterable[Grant], reason: Reason, message: str) -> None:
        """The claim does not get its CPUs now. Returns at once."""
        self._put(refused(ref, grants, reason, message))

    def _put(self, report: Report) -> None:
        if not (report.ref.name and report.devices):
            return
        with self._changed:
            self._waiting.pop(report.ref.uid, None)
            self._waiting[report.ref.uid] = report
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
            self._changed.notify_all()

    def _run(self) -> None:
        while (report := self._next()) is not None:
            try:
                self._write(report)
            except Exception:
                log.exception("the status of claim %s could not be written", report.ref)

    def _next(self) -> Report | None:
        """The report that has waited longest, after the pause that a failure has brought; ``None`` at the end."""
        end = time.monotonic() + self._pause
        with self._changed:
            while not self._stopping:
                left = end - time.monotonic()
                if left <= 0 and self._waiting:
                    return self._waiting.popitem(last=False)[1]
                self._changed.wait(left if left > 0 else None)
        return None

    def _write(self, report: Report) -> None:
        former, since = self._written.get(report.ref.uid, (None, ""))
        if former == report:
            return
        if former is None or former.ready != report.ready:
            since = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            self._api.apply_claim_status(report.ref, report.document(since))
        except ServerError as error:
            self._not_written(report, error)
        except RefusedError as error:
            self._try_again(report, error.message)
        else:
            self._pause, self._is_forbidden = 0.0, False
            self._remember(report, since)

    def _remember(self, report: Report, since: str) -> None:
        self._written[report.ref.uid] = report, since
        self._written.move_to_end(report.ref.uid)
        if len(self._written) > MOST_REMEMBERED:
            self._written.popitem(last=False)

    def _not_written(self, report: Report, error: ServerError) -> None:
        """Try again what may succeed. A claim that is gone, another one of its name, or a report that is not valid
        is left alone."""
        if error.code == FORBIDDEN:
            if not self._is_forbidden:
                log.warning("claims do not show their CPUs in status.devices: %s", error.message)
            self._is_forbidden, self._pause = True, FORBIDDEN_PAUSE
        elif error.code == 0 or error.code == 429 or error.code >= 500:
            self._try_again(report, error.message)
        else:
            log.info("the status of claim %s is not written: %s", report.ref, error.message)

    def _try_again(self, report: Report, why: str) -> None:
        log.info("the status of claim %s is written later: %s", report.ref, why)
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        with self._changed:
            if report.ref.uid not in self._waiting:
                self._waiting[report.ref.uid] = report


def _distinct(grants: Iterable[Grant]) -> Iterator[Grant]:
    """One for each device and share, by which the API server tells entries apart."""
    found = {(grant.pool, grant.device, grant.share_id): grant for grant in reversed(tuple(grants))}
    yield from reversed(found.values())


def _key(grant: Grant) -> Document:
    share = {} if grant.share_id is None else {"shareID": grant.share_id}
    return {"driver": DRIVER, "pool": grant.pool, "device": grant.device, **share}


def _data(entry: Entry, grant: Grant) -> Document:
    """What chose which CPUs. Nothing where it is more than the API server keeps."""
    own = next((each for each in entry.allocations if each.request in _names(grant)), None)
    mems = {"memoryNodes": format_cpuset(entry.mems)} if entry.mems else {}
    said = {
        "request": grant.request,
        **({} if own is None else _chosen(own)),
        "engine": entry.engine or "given",
        "claimCPUs": format_cpuset(entry.cpuset),
        **mems,
    }
    return {"data": said} if len(json.dumps(said)) < LARGEST_DATA else {}


def _chosen(own: Allocation) -> Document:
    return {
        "cpus": format_cpuset(own.cpuset),
        "numaNodes": format_cpuset(own.mems),
        "policy": own.policy,
        "metrics": own.metrics,
    }


def _names(grant: Grant) -> tuple[str, str]:
    """What its request is called for the solver (``driver.claims.wish``)."""
    return grant.request, f"{grant.request}@{grant.device}"
