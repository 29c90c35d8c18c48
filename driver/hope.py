"""Whether a refused claim may be served soon: what it would have to wait for."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from driver.call import Call
from driver.claims.view import ClaimView
from driver.errors import Reason, RefusedError
from driver.ledger.entry import Entry
from driver.ports import ClaimRef
from driver.prepare import Preparer

CPUS, CONDITIONS, TIME = "CPUs have come free", "conditions have changed", "time has passed"
"""Signs that may end a wait; nobody gives the last one."""

MOST_ASKED, PATIENCE, FRESH = 16, 2.0, 2.0
"""Holders of CPUs about whom the API server is asked for one claim, seconds for all of them, and seconds for which
an answer counts."""

CURABLE = {"NRIAway"}
"""Conditions that seconds may cure: a runtime that is started anew."""


@dataclass(frozen=True)
class Hope:
    """What is waited for, in words; the sign that it may have come, and seconds after which it is looked for."""

    what: str
    sign: str
    pause: float


PASSING: dict[Reason, Hope] = {
    "ApiAway": Hope("the API server", TIME, 0.5),
    "NotDecided": Hope("the solver", CPUS, 10.0),
    "ClaimChanged": Hope("the end of its former container", TIME, 0.5),
    "RuntimeAway": Hope("who answers the container runtime", TIME, 0.1),
}
JUST_FREE = Hope("CPUs that have just come free", TIME, 0.0)
LEAVING = Hope("CPUs of claims that are about to leave", CPUS, 2.0)
CPUS_LACK: frozenset[Reason] = frozenset({"NotPlaceable", "NoSharedCPU", "Held"})


def end_of_call(uid: str) -> str:
    """The sign that a call about the claim has ended."""
    return f"a call about {uid} has ended"


class Hopes:
    """Finds them. Safe to use from any thread."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer
        self._let_go: dict[str, tuple[float, bool]] = {}
        """When the API server was last asked about a holder of CPUs, and whether it was let go."""

    def of(self, ref: ClaimRef, error: RefusedError) -> Hope | None:
        """What a refused claim may wait for, if that is no claims that leave. Returns at once."""
        if error.reason == "Busy":
            return Hope("an earlier call about it", end_of_call(ref.uid), 0.5)
        if error.reason == "Degraded":
            conditions = self._preparer.conditions.current()
            names = ", ".join(conditions) or "a condition"
            return Hope(f"the end of {names}", CONDITIONS, 0.5) if conditions.keys() <= CURABLE else None
        return PASSING.get(error.reason)

    def of_cpus(self, call: Call, error: RefusedError, under_way: Collection[str]) -> Hope | None:
        """CPUs that have come free since, or will when claims leave that are about to; ``None`` if that does not
        help. Asks the API server. ``under_way``: uids of claims on which somebody works.
        """
        came_free = self._preparer.ledger.snapshot.free - call.free
        hope = None if came_free or call.view is None else self._of_leaving(call.view, error, under_way)
        came_free = self._preparer.ledger.snapshot.free - call.free
        return hope or (JUST_FREE if came_free else None)

    def _of_leaving(self, view: ClaimView, error: RefusedError, under_way: Collection[str]) -> Hope | None:
        wish, now = self._preparer.make_wish(view), self._preparer.ledger.snapshot
        wanted = wish.set_aside.union(*(each.within or now.node.allocatable for each in wish.requests))
        if error.reason == "NoSharedCPU":
            wanted = now.node.online
        holders = [each for each in now.entries.values() if each.cpuset & wanted and each.uid != view.ref.uid]
        leaving = list(self._leaving(holders, under_way))
        coming = frozenset[int]().union(*(each.cpuset for each in leaving))
        if not leaving or not self._preparer.placer.can_fit(wish, coming):
            return None
        names = ", ".join(sorted(_name(each) for each in leaving)[:5])
        return replace(LEAVING, what=f"{LEAVING.what}: {names}")

    def _leaving(self, holders: Collection[Entry], under_way: Collection[str]) -> Iterator[Entry]:
        """Those that somebody frees just now, and those that the API server does not need here any more."""
        yield from (each for each in holders if each.uid in under_way)
        end = time.monotonic() + PATIENCE
        others = [each for each in holders if each.uid not in under_way and each.name]
        for each in islice(sorted(others, key=lambda each: self._preparer.runtime.carries(each.uid)), MOST_ASKED):
            if (rest := end - time.monotonic()) <= 0:
                return
            if self._is_let_go(each, rest):
                yield each

    def _is_let_go(self, entry: Entry, patience: float) -> bool:
        """Whether nobody needs the claim here, as far as the API server has said just now or lately."""
        now = time.monotonic()
        at, known = self._let_go.get(entry.uid, (now - FRESH, False))
        if now - at >= FRESH:
            known = self._ask(entry, patience)
            fresh = {uid: said for uid, said in self._let_go.copy().items() if now - said[0] < FRESH}
            self._let_go = {**fresh, entry.uid: (now, known)}
        return known

    def _ask(self, entry: Entry, patience: float) -> bool:
        ref = ClaimRef(entry.uid, entry.namespace, entry.name)
        try:
            document = self._preparer.claims.get(ref.namespace, ref.name, patience)
            if document is None:
                return True
            view = self._preparer.read(document, ref)
        except RefusedError as error:
            return error.reason in ("ClaimGone", "BadClaim")
        return not view.pods or not view.grants


def _name(entry: Entry) -> str:
    return f"{entry.namespace}/{entry.name}" if entry.name else entry.uid
