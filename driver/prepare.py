"""Prepare and Unprepare: all or nothing, in an order in which a kill at any point loses nothing.

Prepare reserves in memory, writes the ledger, then the CDI file, then answers. Unprepare removes the CDI file,
then the ledger's, then frees the CPUs. So a claim has its CPUs before anybody can see it, and loses them after.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from driver.cdi import CDI
from driver.claims.view import ClaimView
from driver.claims.wish import Wish
from driver.conditions import Conditions
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.names import is_uid
from driver.ports import ClaimRef, Claims, Document, Observer, Runtime, Solver, Teller
from models import BadInputError, DefectError, InfeasibleError, Result, Topology, UnknownError, format_cpuset

log = logging.getLogger(__name__)

Read = Callable[[Document, ClaimRef], ClaimView]
MakeWish = Callable[[ClaimView], Wish]

TRIES = 5
"""How often a claim is placed anew because another one has got the CPUs meanwhile."""

PLACING, SETTLING = 2.0, 3.0
"""Seconds to wait for those who place before us, and for everyone else's masks to leave the new claim's CPUs."""


@dataclass(frozen=True)
class Preparer:
    """Serves the kubelet. Its methods raise ``RefusedError`` and may be called from many threads.

    ``read`` and ``make_wish`` say what a claim means on this node (``driver.claims``).
    """

    topology: Topology
    claims: Claims
    ledger: Ledger
    cdi: CDI
    solver: Solver
    runtime: Runtime
    teller: Teller
    observer: Observer
    conditions: Conditions
    read: Read
    make_wish: MakeWish
    _placing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def prepare(self, ref: ClaimRef) -> Entry:
        """The claim as the ledger has it from now on."""
        began = time.monotonic()
        with self._refusals_are_told(ref), self.ledger.locks.of(ref.uid):
            if not is_uid(ref.uid):
                raise RefusedError("BadClaim", f"{ref.uid[:80]!r} is no uid")
            former = self.ledger.snapshot.entries.get(ref.uid)
            view = self._view(ref, former)
            if former is not None and (view is None or _is_the_same(former, view)):
                entry, engine = self._again(former, view), "ledger"
            else:
                assert view is not None
                entry = self._anew(view, former)
                engine = entry.engine or "given"
        self.runtime.settle(SETTLING)
        self.observer.prepared(engine, time.monotonic() - began)
        return entry

    def unprepare(self, ref: ClaimRef) -> None:
        """The claim holds nothing any more, whether or not it ever did."""
        if not is_uid(ref.uid):
            return
        with self._refusals_are_told(ref), self.ledger.locks.of(ref.uid), _disk(ref):
            self.cdi.remove(ref.uid)
            if ref.uid in self.ledger.snapshot.entries:
                self.ledger.forget(ref.uid)
                log.info("claim %s released", ref)

    def _view(self, ref: ClaimRef, former: Entry | None) -> ClaimView | None:
        """The claim as the API server has it now; ``None`` if nobody answers and the ledger has it."""
        try:
            document = self.claims.get(ref.namespace, ref.name)
        except RefusedError:
            if former is None or former.adopted:
                raise
            log.warning("claim %s is answered from the ledger, the API server being away", ref)
            return None
        if document is None:
            raise RefusedError("ClaimGone", f"there is no claim {ref}")
        return self.read(document, ref)

    def _again(self, former: Entry, view: ClaimView | None) -> Entry:
        """A claim that the ledger has. Who may carry it can have changed, and its CDI file may be gone."""
        entry = former if view is None else _known(former, view)
        with _disk(ClaimRef(former.uid, former.namespace, former.name)):
            if entry != former:
                self.ledger.update(entry)
                self.ledger.write(entry.uid)
            self.cdi.write(entry)
        return entry

    def _anew(self, view: ClaimView, former: Entry | None) -> Entry:
        if former is not None and self.runtime.carries(view.ref.uid):
            reason = f"claim {view.ref} was allocated anew while a container runs on its former CPUs"
            raise RefusedError("ClaimChanged", f"{reason}; it must end first")
        if self.conditions.current():
            raise RefusedError("Degraded", f"nothing new is prepared on this node: {self.conditions}")
        wish = self.make_wish(view)
        for note in wish.notes:
            self.teller.tell(view.ref, "Note", note, warning=False)
        entry = self._placed(view, wish, former)
        self._commit(entry, former)
        log.info(
            "claim %s prepared by %s: CPUs %s", view.ref, entry.engine or "given", format_cpuset(entry.cpuset)
        )
        return entry

    def _placed(self, view: ClaimView, wish: Wish, former: Entry | None) -> Entry:
        """The claim's entry, reserved in memory. Claims take turns, but nobody waits for a turn for long."""
        turn = self._placing.acquire(timeout=PLACING)
        try:
            for last in (*[False] * (TRIES - 1), True):
                entry = self._entry(view, wish, self._solve(view.ref, wish, former))
                try:
                    self.ledger.reserve(entry)
                    return entry
                except RefusedError as error:
                    if last or error.reason != "Held" or self._set_aside_is_held(wish, view.ref.uid):
                        raise
        finally:
            if turn:
                self._placing.release()
        raise AssertionError("the last try returns or raises")

    def _set_aside_is_held(self, wish: Wish, uid: str) -> bool:
        snapshot = self.ledger.snapshot
        mine = snapshot.entries[uid].cpuset if uid in snapshot.entries else frozenset()
        return bool(wish.set_aside - snapshot.free - mine)

    def _solve(self, ref: ClaimRef, wish: Wish, former: Entry | None) -> Result | None:
        if not wish.requests:
            return None
        snapshot = self.ledger.snapshot
        mine = frozenset() if former is None else former.cpuset & snapshot.node.allocatable
        try:
            result = self.solver.solve(wish.requests, (snapshot.free | mine) - wish.set_aside)
            result.require()
        except BadInputError as error:
            raise RefusedError("BadConfig", f"claim {ref}: {error}") from None
        except InfeasibleError as error:
            raise RefusedError("NotPlaceable", f"claim {ref}: {error}") from None
        except UnknownError as error:
            raise RefusedError("NotDecided", f"claim {ref}: {error}; it is tried again") from None
        except DefectError as error:
            raise RefusedError("Defect", f"claim {ref}: a bug in cpusat, please report it: {error}") from None
        return result

    def _entry(self, view: ClaimView, wish: Wish, result: Result | None) -> Entry:
        allocations = () if result is None else result.allocations
        cpus = wish.set_aside.union(*(given.cpuset for given in allocations))
        return Entry(
            uid=view.ref.uid,
            namespace=view.ref.namespace,
            name=view.ref.name,
            fingerprint=view.fingerprint,
            cpuset=cpus,
            mems=self._numa_nodes(cpus) if wish.memory == "bind" else frozenset(),
            grants=view.grants,
            pods=view.pods,
            allocations=allocations,
            engine=None if result is None else result.engine,
        )

    def _numa_nodes(self, cpus: frozenset[int]) -> frozenset[int]:
        nodes = {cpu.numa for cpu in self.topology.cpus if cpu.cpu in cpus}
        return frozenset(node for node in nodes if node is not None)

    def _commit(self, entry: Entry, former: Entry | None) -> None:
        with _disk(ClaimRef(entry.uid, entry.namespace, entry.name)):
            try:
                self.ledger.write(entry.uid)
                self.cdi.write(entry)
            except OSError:
                self._undo(entry, former)
                raise

    def _undo(self, entry: Entry, former: Entry | None) -> None:
        """Back to what was. Where the disk does not even let us remove a file, the CPUs stay held as it says."""
        try:
            if former is None:
                self.cdi.remove(entry.uid)
                self.ledger.forget(entry.uid)
            else:
                self.ledger.rollback(entry.uid, former)
                self.ledger.write(entry.uid)
                self.cdi.write(former)
        except OSError as error:
            log.warning("claim %s could not be undone on disk: %s", entry.uid, error)

    @contextmanager
    def _refusals_are_told(self, ref: ClaimRef) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            self.observer.refused(error.reason)
            self.teller.tell(ref, error.reason, error.message)
            log.warning("claim %s refused: %s", ref, error)
            raise


def _is_the_same(former: Entry, view: ClaimView) -> bool:
    """Whether the claim is as it was when it was placed. One of another driver is if it has as many CPUs."""
    if former.adopted:
        return sum(grant.cpus for grant in view.grants) == len(former.cpuset)
    return former.fingerprint == view.fingerprint


def _known(former: Entry, view: ClaimView) -> Entry:
    """The entry with what the API server says of who may carry it, and of whose claim it is."""
    told = {
        "namespace": view.ref.namespace,
        "name": view.ref.name,
        "pods": view.pods,
        "grants": view.grants,
        "fingerprint": view.fingerprint,
        "adopted": False,
    }
    return former.model_copy(update=told)


@contextmanager
def _disk(ref: ClaimRef) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            "Disk", f"claim {ref}: {error.filename or 'disk'}: {error.strerror or error}"
        ) from error
