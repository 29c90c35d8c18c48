"""Keeps the node's ResourceSlices as they should be: published, and again when they vanish or are changed."""

import logging
import random
import threading
from collections.abc import Callable, Sequence

from driver.cluster.api import Api
from driver.conditions import Conditions
from driver.devices.slices import NodeRef
from driver.errors import RefusedError
from driver.ports import Document

log = logging.getLogger(__name__)

Make = Callable[[NodeRef, int], Sequence[Document]]
"""From the node and a generation to the slices of its pool."""

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
WITHDRAWN = 300.0
"""Seconds until we look whether the server has learned what it did not know."""


class Publisher:
    """A thread that publishes. At ``stop`` the slices stay: the pods that use them do too."""

    def __init__(self, api: Api, node: str, make: Make, conditions: Conditions) -> None:
        self._api, self._node, self._make, self._conditions = api, node, make, conditions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slices", daemon=True)

    def start(self) -> None:
        """Begin to publish. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End it; a watch that waits ends with the process."""
        self._stopping.set()

    def publish(self) -> str | None:
        """Make the server have our slices. The version of its list once it has, ``None`` if they were not right.

        A server that does not keep all that it is told gets none; a condition then says why. Raises
        ``RefusedError("ApiAway")``.
        """
        uid = self._api.node_uid(self._node)
        if uid is None:
            raise RefusedError("ApiAway", f"there is no node {self._node!r}; set hostnameOverride to its name")
        node = NodeRef(self._node, uid)
        there, version = self._api.slices(self._node)
        if _content(there) == _content(self._make(node, 0)):
            self._conditions.clear("SlicesWithdrawn")
            return version
        generation = max((_generation(each) for each in there), default=0) + 1
        made = [self._api.create_slice(each) for each in self._make(node, generation)]
        for each in there:
            self._api.delete_slice(_name(each))
        if _content(made) != _content(self._make(node, 0)):
            self._withdraw(made)
        else:
            log.info("%d slices published, generation %d", len(made), generation)
        return None

    def _withdraw(self, made: Sequence[Document]) -> None:
        for each in made:
            self._api.delete_slice(_name(each))
        self._conditions.set(
            "SlicesWithdrawn",
            "the API server drops fields of our ResourceSlices, so that one claim would take a whole device; "
            "enable the feature gate DRAConsumableCapacity on API server and scheduler (it is on from 1.36)",
        )

    def _run(self) -> None:
        retry = FIRST_RETRY
        while not self._stopping.is_set():
            try:
                if version := self.publish():
                    retry = FIRST_RETRY
                    self._wait_for_a_change(version)
                elif "SlicesWithdrawn" in self._conditions.current():
                    self._stopping.wait(WITHDRAWN)
                continue
            except RefusedError as error:
                log.warning("slices: %s", error.message)
            self._stopping.wait(retry * random.uniform(0.5, 1.0))
            retry = min(2 * retry, LAST_RETRY)

    def _wait_for_a_change(self, version: str) -> None:
        for operation, each in self._api.watch_slices(self._node, version):
            log.info("slice %s: %s", _name(each), operation.lower())
            return


def _content(slices: Sequence[Document]) -> list[tuple[str, str]]:
    """What is published, whatever the slices are called and whichever generation they are of."""
    found = []
    for each in slices:
        spec = dict(each.get("spec") or {})
        pool = dict(spec.pop("pool", None) or {})
        pool.pop("generation", None)
        found.append((repr(_sorted(spec)), repr(_sorted(pool))))
    return sorted(found)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return [(key, _sorted(inner)) for key, inner in sorted(value.items())]
    return [_sorted(inner) for inner in value] if isinstance(value, list) else value


def _generation(each: Document) -> int:
    generation = ((each.get("spec") or {}).get("pool") or {}).get("generation")
    return generation if isinstance(generation, int) else 0


def _name(each: Document) -> str:
    return str((each.get("metadata") or {}).get("name", ""))
