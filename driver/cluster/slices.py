"""Keeps the node's ResourceSlices as they should be: published, and again when they vanish or are changed."""

import hashlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from driver.cluster.api import Api, InvalidError, at
from driver.conditions import Conditions
from driver.devices.slices import NodeRef
from driver.errors import RefusedError
from driver.ports import Document

log = logging.getLogger(__name__)

Make = Callable[[NodeRef, int], Sequence[Document]]
"""From the node and a generation to the slices of its pool."""

Content = list[tuple[int, str]]
"""What is published, whatever the slices are called: generation, less the newest one, and digest of each."""

FIRST_PAUSE, LAST_PAUSE = 0.2, 30.0
CALM = 10.0
"""Seconds without an error or a change after which the next one is dealt with at once."""

TRIES = 3
"""Looks at what is published until it is as it should be. What should be may change in between."""

TRANSIENT = 10.0
"""Seconds of refusals in a row before they are logged as warnings."""

ENDING = 1.0
"""Seconds that ``stop`` waits."""

WITHDRAWN = 300.0
"""Seconds until we look whether the server has learned what it did not know."""

CONSUMABLE = (
    "without them one claim would take a whole device; enable the feature gate DRAConsumableCapacity on "
    "API server and scheduler (it is on from Kubernetes 1.36)"
)
WAYS_OUT = {
    "allowMultipleAllocations": CONSUMABLE,
    "requestPolicy": CONSUMABLE,
    "nodeAllocatableResources": "it needs Kubernetes 1.37; or set publishNodeAllocatableResourceMapping: false",
}


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Seen:
    """What we keep of a slice: its name, its pool's generation, and a digest of all else that it says."""

    name: str
    generation: int
    digest: str


class Publisher:
    """A thread that publishes. At ``stop`` the slices stay: the pods that use them do too.

    ``offer``: all that the slices depend on and that may change, to be compared.
    """

    def __init__(
        self, api: Api, node: str, make: Make, conditions: Conditions, offer: Callable[[], object] = _nothing
    ) -> None:
        self._api, self._node, self._make, self._conditions = api, node, make, conditions
        self._offer, self._offered, self._lock = offer, offer(), threading.Lock()
        self._again = threading.Event()
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="slices-watch")
        self._kept: tuple[Content, Content] | None = None
        self._failing_since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slices", daemon=True)

    def start(self) -> None:
        """Begin to publish. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait a little: somebody else publishes soon."""
        self._stopping.set()
        self._again.set()
        end = time.monotonic() + ENDING
        while self._thread.is_alive() and time.monotonic() < end:
            self._api.end_watches()
            self._thread.join(0.1)

    def changed(self) -> None:
        """The ledger has changed: if the offer has, too, it is published soon. Returns at once."""
        with self._lock:
            former, self._offered = self._offered, self._offer()
            if former != self._offered:
                self._again.set()

    def publish(self) -> str | None:
        """Make the server have our slices. The version of its list, ``None`` if it has none of them.

        A server that does not keep all that it is told gets none, and a condition says why. Raises
        ``RefusedError("ApiAway")``.
        """
        node = self._owner()
        for _ in range(TRIES):
            there, version = self._api.slices(self._node, seen)
            if self._is_right(node, there):
                self._conditions.clear("SlicesWithdrawn")
                return version
            if reason := self._replace(node, there):
                self._withdraw(reason)
                return None
        raise RefusedError("ApiAway", "somebody changes our slices as soon as they are published")

    def _owner(self) -> NodeRef:
        uid = self._api.node_uid(self._node)
        if uid is None:
            raise RefusedError("ApiAway", f"there is no node {self._node!r}; set hostnameOverride to its name")
        return NodeRef(self._node, uid)

    def _is_right(self, node: NodeRef, there: Sequence[Seen]) -> bool:
        """Whether the slices say what ours would, or what the server made of ours when we created them."""
        wanted, found = self._wanted(node), content(there)
        return found == wanted or (wanted, found) == self._kept

    def _wanted(self, node: NodeRef) -> Content:
        return content([seen(each) for each in self._make(node, 0)])

    def _replace(self, node: NodeRef, there: Sequence[Seen]) -> str | None:
        """Publish a new generation. Why the server cannot have it, ``None`` if it does.

        It is asked first what it would keep, so that nobody ever allocates from slices that lack something.
        """
        generation = max((each.generation for each in there), default=0) + 1
        documents = self._make(node, generation)
        for dry_run in (True, False):
            try:
                made, lost = self._create(documents, dry_run)
            except InvalidError as error:
                return error.message
            if lost:
                return _why_lost(lost)
        for each in there:
            self._api.delete_slice(each.name)
        self._kept = content([seen(each) for each in documents]), content(made)
        log.info("%d slices published, generation %d", len(made), generation)
        return None

    def _create(self, documents: Sequence[Document], dry_run: bool) -> tuple[list[Seen], set[str]]:
        """Create slices. What the server makes of them, and the names of the fields that it has dropped."""
        made, lost = list[Seen](), set[str]()
        for each in documents:
            kept = self._api.create_slice(each, dry_run=dry_run)
            made.append(seen(kept))
            lost.update(_lost(each["spec"], at(kept, "spec")))
        return made, lost

    def _withdraw(self, reason: str) -> None:
        self._conditions.set("SlicesWithdrawn", reason)
        there, _ = self._api.slices(self._node, seen)
        for each in there:
            self._api.delete_slice(each.name)
        log.error("%d slices withdrawn: %s", len(there), reason)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._round()
            except RefusedError as error:
                if not self._stopping.is_set():
                    self._tell(error)
            except Exception:
                log.exception("slices could not be published")
            if time.monotonic() - began > CALM:
                pause = FIRST_PAUSE
            self._stopping.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_PAUSE)

    def _tell(self, error: RefusedError) -> None:
        """Log what lasts. An API server that has just begun refuses what it is going to allow."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        lasts = now - self._failing_since >= TRANSIENT
        log.log(logging.WARNING if lasts else logging.DEBUG, "slices: %s", error.message)

    def _round(self) -> None:
        """Publish, and wait until there may be something to do again."""
        self._again.clear()
        version = self.publish()
        self._failing_since = None
        if version is None:
            self._again.wait(WITHDRAWN)
            return
        watching = self._watcher.submit(self._watch, version)
        watching.add_done_callback(lambda _: self._again.set())
        self._again.wait()
        while wait([watching], 0.1).not_done:
            self._api.end_watches()
        if not self._stopping.is_set():
            watching.result()

    def _watch(self, version: str) -> None:
        """Return as soon as something happens to our slices."""
        for operation, name in self._api.watch_slices(self._node, version):
            log.info("slice %s: %s", name, operation.lower())
            return


def seen(document: Document) -> Seen:
    """What we keep of a slice."""
    generation = at(document, "spec", "pool", "generation")
    pool = {**_fields(document, "spec", "pool"), "generation": 0}
    said = json.dumps({**_fields(document, "spec"), "pool": pool}, sort_keys=True)
    return Seen(
        name=str(at(document, "metadata", "name") or ""),
        generation=generation if isinstance(generation, int) else 0,
        digest=hashlib.sha256(said.encode()).hexdigest(),
    )


def _fields(document: Document, *path: str) -> Document:
    found = at(document, *path)
    return found if isinstance(found, dict) else {}


def content(slices: Sequence[Seen]) -> Content:
    """What slices say together."""
    newest = max((each.generation for each in slices), default=0)
    return sorted((each.generation - newest, each.digest) for each in slices)


def _why_lost(names: Iterable[str]) -> str:
    """Why slices that the server makes of ours are not ours, with the way out."""
    ways = dict.fromkeys(WAYS_OUT[name] for name in sorted(names) if name in WAYS_OUT)
    return f"the API server drops {', '.join(sorted(names))} of our ResourceSlices; {'; '.join(ways)}"


def _lost(sent: object, kept: object, name: str = "spec") -> Iterator[str]:
    """Names of fields that are not kept as they were sent. What is there beside them does no harm."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for key, value in sent.items():
            yield from _lost(value, kept.get(key), key)
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for one, other in zip(sent, kept, strict=True):
            yield from _lost(one, other, name)
    elif sent != kept and (sent or kept):
        yield name
