"""Prepare and Unprepare: all or nothing, in an order in which a kill at any point loses nothing.

Prepare reserves in memory, writes the ledger, then the CDI file, then answers. Unprepare removes the CDI file,
then the ledger's, then frees the CPUs. So a claim has its CPUs before anybody can see it, and loses them after.
"""

import logging
import time
from collections import Counter
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
from driver.ledger.locks import BusyError
from driver.names import is_uid
from driver.placing import Placer
from driver.ports import ClaimRef, Claims, Document, Observer, Runtime, Solver, Teller
from models import Topology, format_cpuset

log = logging.getLogger(__name__)

Read = Callable[[Document, ClaimRef], ClaimView]
MakeWish = Callable[[ClaimView], Wish]

SETTLING = 3.0
"""Seconds to wait for everyone else's masks to leave a new claim's CPUs."""

BUSY = 40.0
"""Seconds to wait for an earlier call about the same claim. The kubelet gives up after 45 and asks again."""


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Preparer:
    """Serves the kubelet. Its methods raise ``RefusedError`` and may be called from many threads.

    ``read`` and ``make_wish`` say what a claim means on this node (``driver.claims``). ``greedy`` answers in
    milliseconds when the ``solver`` is kept busy by others.
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
    greedy: Solver | None = None
    _placer: Placer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        placer = Placer(self.ledger, self.topology, self.solver, self.greedy or self.solver, self.observer)
        object.__setattr__(self, "_placer", placer)

    def prepare(self, ref: ClaimRef, wanted: Callable[[], bool] = _always) -> Entry:
        """The claim as the ledger has it from now on. ``wanted``: whether anybody still waits for it."""
        began = time.monotonic()
        with self._turn(ref, wanted):
            former = self.ledger.snapshot.entries.get(ref.uid)
            view = self._view(ref, former)
            if former is not None and (view is None or self._is_the_same(former, view)):
                entry, engine = self._again(former, view), "ledger"
            else:
                assert view is not None
                entry = self._anew(view, former)
                engine = entry.engine or "given"
            self.ledger.touch(ref.uid)
        if engine != "ledger" and not self.runtime.settle(SETTLING):
            log.warning("other containers have not left the CPUs of claim %s yet; its own has to wait", ref)
        self.observer.prepared(engine, time.monotonic() - began, len(entry.cpuset))
        return entry

    def unprepare(self, ref: ClaimRef, wanted: Callable[[], bool] = _always) -> None:
        """The claim holds nothing any more, whether or not it ever did."""
        with self._turn(ref, wanted), _disk(ref):
            known = ref.uid in self.ledger.snapshot.entries
            self._release(ref.uid)
            if known:
                self.observer.unprepared()
                log.info("claim %s released", ref)

    def release_if(self, ref: ClaimRef, still: Callable[[], bool]) -> bool:
        """Free the claim's CPUs if ``still`` says so while nobody else can change it. Whether they are free now.

        A claim that somebody works on is left to them. Raises ``RefusedError("Disk")``; then it keeps its CPUs.
        """
        try:
            with self.ledger.locks.of(ref.uid, timeout=0), _disk(ref):
                if not still():
                    return False
                self._release(ref.uid)
        except BusyError:
            return False
        self.observer.unprepared()
        return True

    @contextmanager
    def _turn(self, ref: ClaimRef, wanted: Callable[[], bool]) -> Iterator[None]:
        """Be the only one who changes the claim. Refusals are counted and told; a defect becomes one."""
        try:
            if not is_uid(ref.uid):
                raise RefusedError("BadClaim", f"{ref.uid[:80]!r} is no uid")
            with self._lock(ref):
                if not wanted():
                    raise RefusedError("Busy", f"claim {ref}: the kubelet has not waited for it")
                yield
        except RefusedError as error:
            self.observer.refused(error.reason)
            if error.reason != "Busy":
                self.teller.tell(ref, error.reason, error.message)
            log.warning("claim %s refused: %s", ref, error)
            raise
        except Exception as error:
            self.observer.refused("Defect")
            log.exception("claim %s: a bug in cpusat, please report it", ref)
            raise RefusedError("Defect", f"claim {ref}: {type(error).__name__}, see the driver's log") from error

    @contextmanager
    def _lock(self, ref: ClaimRef) -> Iterator[None]:
        try:
            with self.ledger.locks.of(ref.uid, BUSY):
                yield
        except BusyError:
            raise RefusedError("Busy", f"claim {ref}: an earlier call is still at work; see to the disk") from None

    def _view(self, ref: ClaimRef, former: Entry | None) -> ClaimView | None:
        """The claim as the API server has it now; ``None`` if nobody answers and the ledger has it."""
        try:
            document = self.claims.get(ref.namespace, ref.name)
        except RefusedError as error:
            if error.reason != "ApiAway" or former is None or not former.grants:
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
            if not self.ledger.stands(entry.uid):
                self.ledger.write(entry.uid)
            self.cdi.write(entry)
        return entry

    def _is_the_same(self, former: Entry, view: ClaimView) -> bool:
        """Whether the claim is as it was when it was placed. One of another driver is if it has as many CPUs, and,
        unless a container runs on them, of the same devices."""
        if not former.adopted:
            return former.fingerprint == view.fingerprint
        if sum(grant.cpus for grant in view.grants) != len(former.cpuset):
            return False
        return self.runtime.carries(former.uid) or self._fits(former.cpuset, view)

    def _fits(self, cpus: frozenset[int], view: ClaimView) -> bool:
        """Whether the claim could have been given these CPUs; also if it is of devices that are not here."""
        try:
            wish = self.make_wish(view)
        except RefusedError:
            return True
        consumed: Counter[frozenset[int]] = Counter()
        for request in wish.requests:
            consumed[request.within or frozenset()] += request.cpus
        chosen = cpus - wish.set_aside
        return wish.set_aside <= cpus and all(len(chosen & each) == size for each, size in consumed.items())

    def _anew(self, view: ClaimView, former: Entry | None) -> Entry:
        if former is not None and self.runtime.carries(view.ref.uid):
            reason = f"claim {view.ref} was allocated anew while a container runs on its former CPUs"
            raise RefusedError("ClaimChanged", f"{reason}; it must end first")
        if self.conditions.current():
            raise RefusedError("Degraded", f"nothing new is prepared on this node: {self.conditions}")
        wish = self.make_wish(view)
        with _disk(view.ref):
            if former is not None:
                self._release(former.uid)
            entry, unmet = self._placer.place(_draft(view), wish)
            self._commit(entry)
        for note in (*wish.notes, *unmet):
            self.teller.tell(view.ref, "Note", note, warning=False)
        chosen_by = entry.engine or "the claim itself"
        log.info("claim %s prepared: CPUs %s, by %s", view.ref, format_cpuset(entry.cpuset), chosen_by)
        return entry

    def _commit(self, entry: Entry) -> None:
        """Make the reservation last and be seen, or undo it."""
        try:
            self.ledger.write(entry.uid)
            self.cdi.write(entry)
        except BaseException:
            try:
                self._release(entry.uid)
            except OSError as error:
                log.warning(
                    "claim %s keeps its CPUs until the disk lets us remove its files: %s", entry.uid, error
                )
            raise

    def _release(self, uid: str) -> None:
        """Remove the claim's files, then free its CPUs. Raises ``OSError``; then it keeps them."""
        self.cdi.remove(uid)
        self.ledger.forget(uid)


def _draft(view: ClaimView) -> Entry:
    """The claim's entry but for its CPUs."""
    return Entry(
        uid=view.ref.uid,
        namespace=view.ref.namespace,
        name=view.ref.name,
        fingerprint=view.fingerprint,
        cpuset=frozenset(),
        grants=view.grants,
        pods=frozenset(view.pods),
        pod_names=dict(view.pods),
        pod_claim=view.pod_claim,
    )


def _known(former: Entry, view: ClaimView) -> Entry:
    """The entry with what the API server says of who may carry it, and of whose claim it is."""
    told = {
        "namespace": view.ref.namespace,
        "name": view.ref.name,
        "pods": frozenset(view.pods),
        "pod_names": dict(view.pods),
        "pod_claim": view.pod_claim,
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
