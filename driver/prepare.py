"""Prepare and Unprepare: all or nothing, in an order in which a kill at any point loses nothing.

Prepare reserves in memory, writes the ledger, then the CDI file, then answers, if whoever answers the container
runtime knows the claim by then. Unprepare removes the CDI file,
then the ledger's, then frees the CPUs. So a claim has its CPUs before anybody can see it, and loses them after.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from driver.call import LEDGER, Call, Look
from driver.cdi import CDI
from driver.claims.view import ClaimView
from driver.claims.wish import Wish
from driver.conditions import Conditions
from driver.entries import could_have, draft, updated
from driver.errors import Reason, RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry, Grant, Shown
from driver.ledger.locks import BusyError
from driver.names import is_uid
from driver.placing import Placer
from driver.ports import ClaimRef, Claims, Document, Observer, Reporter, Runtime, Solver, Teller
from models import Topology, format_cpuset

log = logging.getLogger(__name__)

Read = Callable[[Document, ClaimRef], ClaimView]
MakeWish = Callable[[ClaimView], Wish]
Show = Callable[[ClaimView], dict[str, Shown]]

SETTLING = 3.0
"""Seconds to wait for those on a new claim's CPUs whom the creation of its container would not move: one that is
about to start, or whose mask the runtime did not change. A creation that is refused is tried again much later."""

KNOWING = 1.0
"""Seconds in which a thread waits until the container runtime is answered by the ledger as it is now."""

BUSY = 0.2
"""Seconds in which a thread waits for others who change the same claim. Who waits longer does so without a thread
(``driver.desk``)."""

UNKNOWN, KNOWN = 10.0, 2.0
"""Seconds to wait for the API server: for a claim of which nothing is known yet, and for one that the ledger has,
which is then answered from there. The kubelet waits 45 for all claims of a pod."""

LOOKS = 3
"""At the same claim in one call, if others change it meanwhile."""


def show_nothing(_: ClaimView) -> dict[str, Shown]:
    """Containers are not shown their devices."""
    return {}


class Unreported:
    """Claims do not show what became of them."""

    def prepared(self, entry: Entry) -> None:
        """Nothing."""

    def refused(self, ref: ClaimRef, grants: Iterable[Grant], reason: Reason, message: str) -> None:
        """Nothing."""


UNREPORTED = Unreported()


@dataclass(frozen=True)
class Preparer:
    """Serves the kubelet. Its methods raise ``RefusedError`` and may be called from many threads.

    A Prepare is a ``look`` at the claim, which holds no lock while the API server takes its time, then ``place``.
    ``read`` and ``make_wish`` say what a claim means on this node (``driver.claims``), ``show`` what containers
    are shown of its devices (``driver.metadata``). ``greedy`` answers in milliseconds when the ``solver`` is kept
    busy by others. ``behind`` is called with the uid of a claim that was answered from the ledger because the API
    server did not answer: it has ``renew`` called soon.
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
    show: Show = show_nothing
    reporter: Reporter = UNREPORTED
    greedy: Solver | None = None
    behind: Callable[[str], None] = lambda _: None
    busy: float = BUSY
    placer: Placer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        placer = Placer(self.ledger, self.topology, self.solver, self.greedy or self.solver, self.observer)
        object.__setattr__(self, "placer", placer)

    def look(self, call: Call) -> Look:
        """The claim as the API server has it now. Raises ``RefusedError``."""
        former = self.known(check_uid(call.ref))
        try:
            with call.stage("get"):
                return Look(former, self._view(call.ref, KNOWN if answers(former) else UNKNOWN))
        except RefusedError as error:
            if error.reason != "ApiAway" or not answers(former):
                raise
            return self.unseen(call)

    def unseen(self, call: Call) -> Look:
        """The claim, which the ledger has, without the API server. It is looked at when that answers again."""
        log.warning("claim %s is answered from the ledger, the API server being away", call.ref)
        self.behind(call.ref.uid)
        return Look(self.known(call.ref), None)

    def known(self, ref: ClaimRef) -> Entry | None:
        """What the ledger has of the claim."""
        return self.ledger.snapshot.entries.get(ref.uid)

    def place(self, call: Call, look: Look) -> Entry | None:
        """Do what the look says; ``None`` if it is of no use any more, since the claim was changed meanwhile.

        Raises ``RefusedError``; ``Busy`` if others change the claim.
        """
        with self._turn(call):
            former = self.known(call.ref)
            if not look.is_current(former):
                return None
            entry, engine = self._decided(call, former, look.view)
            call.engine = engine if call.engine == LEDGER else call.engine
            self.ledger.touch(call.ref.uid)
        self._await_runtime(call)
        self._check_held(call.ref, entry)
        self.observer.prepared(call.engine, call.age, len(entry.cpuset))
        self.reporter.prepared(entry)
        call.tell(self.observer)
        return entry

    def free(self, call: Call) -> None:
        """Unprepare the claim: it holds nothing any more, whether or not it ever did. Raises as ``place`` does."""
        ref = check_uid(call.ref)
        with self._turn(call), _disk(ref):
            known = self.known(ref) is not None
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

    def renew(self, uid: str) -> None:
        """Bring a claim that the ledger has up to date, as a Prepare would. Raises ``RefusedError``."""
        for _ in range(LOOKS):
            former = self.ledger.snapshot.entries.get(uid)
            if former is None or not former.name:
                return
            ref = ClaimRef(uid, former.namespace, former.name)
            call, look = Call(ref), Look(former, self._view(ref, UNKNOWN))
            with self._turn(call):
                if look.is_current(now := self.known(ref)):
                    self._decided(call, now, look.view)
                    return

    def _check_held(self, ref: ClaimRef, entry: Entry) -> None:
        """That the claim still holds its CPUs. Nobody was kept from releasing it while the runtime was waited for.

        Raises ``RefusedError("ClaimGone")``: the CPUs may be another claim's by now.
        """
        held = self.known(ref)
        if held is None or held.cpuset != entry.cpuset:
            raise RefusedError("ClaimGone", f"claim {ref}: it was released while it was being prepared")

    def _await_runtime(self, call: Call) -> None:
        """See that whoever answers the runtime knows the claim. Otherwise it is refused; it keeps its CPUs, with
        which the kubelet's next try is answered. Then see to the masks of others, if the CPUs are new to it."""
        if not self.runtime.knows(KNOWING):
            reason = "who answers the container runtime has not taken note of it; it is tried again"
            raise RefusedError("RuntimeAway", f"claim {call.ref}: {reason}")
        if call.engine == LEDGER:
            return
        with call.stage("settle"):
            settled = self.runtime.settle(SETTLING)
        if not settled:
            log.warning("other containers are still on CPUs of claim %s; its own has to wait", call.ref)

    @contextmanager
    def reported(self, call: Call) -> Iterator[None]:
        """Refusals are counted and told; a defect becomes one."""
        ref = call.ref
        try:
            yield
        except RefusedError as error:
            self.observer.refused(error.reason)
            if error.reason != "Busy":
                self.teller.tell(ref, error.reason, error.message)
                self.reporter.refused(ref, call.view.grants if call.view else (), error.reason, error.message)
            log.warning("claim %s refused: %s", ref, error)
            raise
        except Exception as error:
            self.observer.refused("Defect")
            log.exception("claim %s: a bug in cpusat, please report it", ref)
            raise RefusedError("Defect", f"claim {ref}: {type(error).__name__}, see the driver's log") from error

    @contextmanager
    def _turn(self, call: Call) -> Iterator[None]:
        """Be the only one who changes the claim, if that is still wanted."""
        try:
            with self.ledger.locks.of(call.ref.uid, self.busy):
                if not call.wanted():
                    raise RefusedError("Busy", f"claim {call.ref}: the kubelet has not waited for it")
                yield
        except BusyError:
            reason = f"claim {call.ref}: an earlier call is still at work; see to the disk"
            raise RefusedError("Busy", reason) from None

    def _view(self, ref: ClaimRef, patience: float) -> ClaimView:
        document = self.claims.get(ref.namespace, ref.name, patience)
        if document is None:
            raise RefusedError("ClaimGone", f"there is no claim {ref}")
        return self.read(document, ref)

    def _decided(self, call: Call, former: Entry | None, view: ClaimView | None) -> tuple[Entry, str]:
        """The claim's entry, and what chose its CPUs: ``ledger`` if it has them as before."""
        if former is not None and (view is None or self._is_the_same(former, view)):
            return self._again(former, view), LEDGER
        assert view is not None
        entry = self._anew(call, view, former)
        return entry, entry.engine or "given"

    def _again(self, former: Entry, view: ClaimView | None) -> Entry:
        """A claim that the ledger has. Who may carry it can have changed, and its CDI file may be gone."""
        entry = former if view is None else updated(former, view, former.shown or self.show(view))
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
        if self.runtime.carries(former.uid):
            return True
        try:
            return could_have(self.make_wish(view), former.cpuset)
        except RefusedError:
            return True  # It is of devices that are not here.

    def _anew(self, call: Call, view: ClaimView, former: Entry | None) -> Entry:
        if former is not None and self.runtime.carries(view.ref.uid):
            reason = f"claim {view.ref} was allocated anew while a container runs on its former CPUs"
            raise RefusedError("ClaimChanged", f"{reason}; it must end first")
        if self.conditions.current():
            raise RefusedError("Degraded", f"nothing new is prepared on this node: {self.conditions}")
        wish = self.make_wish(view)
        with _disk(view.ref):
            if former is not None:
                self._release(former.uid)
            with call.stage("solve"):
                entry, unmet = self.placer.place(draft(view, self.show(view)), wish)
            with call.stage("write"):
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


def answers(entry: Entry | None) -> bool:
    """Whether the ledger can answer for the claim by itself."""
    return entry is not None and bool(entry.grants)


def check_uid(ref: ClaimRef) -> ClaimRef:
    """The claim. Raises ``RefusedError`` for a uid that can be no part of a file's name."""
    if not is_uid(ref.uid):
        raise RefusedError("BadClaim", f"{ref.uid[:80]!r} is no uid")
    return ref


@contextmanager
def _disk(ref: ClaimRef) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            "Disk", f"claim {ref}: {error.filename or 'disk'}: {error.strerror or error}"
        ) from error
