"""Brings every container's mask in line with the ledger, again and again, until the kernel has it so."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty

from driver.nri.container import Container
from driver.nri.glance import ReadMask
from driver.nri.registry import Registry
from driver.nri.session import look
from driver.nri.sight import text_of
from driver.ports import MaskObserver
from models import CpusatError

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two looks at every container."""

SOON, SLOWEST = 0.05, 1.0
"""Seconds between two looks at containers that are not in line: at first, and in the end."""

BREATH = 0.01
"""Seconds between two rounds at least: a storm of events does not make as many rounds."""

LULL = 0.05
"""Seconds in which nothing is told after a change, unless the Prepare that made it is over. Its answer goes first
where both need the CPU."""

FIRST_BACKOFF, LAST_BACKOFF = 0.2, 30.0
"""Seconds between two attempts to tell the runtime what it did not do."""

COMPLAIN_AT = 1.0
"""Backoff from which it is said which containers do not take their masks."""


class Reconciler:
    """A thread that does what handlers must not wait for.

    ``tell``: tells the runtime what is due, or asks for its list in any case; whether there is a runtime. Never
    called twice at a time. ``after``: called after each round. ``patience``: seconds in which replies to what the
    runtime asks may carry a change, before it is told by itself.
    """

    def __init__(
        self,
        registry: Registry,
        kernel: ReadMask,
        observer: MaskObserver,
        tell: Callable[[bool], bool],
        after: Callable[[], None],
    ) -> None:
        self._registry, self._kernel, self._observer = registry, kernel, observer
        self._tell, self._after = tell, after
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._fresh, self._urgent, self._answered = threading.Event(), threading.Event(), threading.Event()
        self.patience, self._since = 0.0, float("inf")
        self._pause, self._backoff = SOON, 0.0
        self._not_before = self._looked_at_all = 0.0
        self._relist_at = float("inf")
        self._thread = threading.Thread(target=self._run, name="nri-reconcile", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the round it is at."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def alive(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Something has happened. Returns at once."""
        self._woken.set()

    def changed(self) -> None:
        """The ledger has changed: whatever failed before may succeed now."""
        self._fresh.set()
        self._woken.set()

    def answered(self) -> None:
        """Whoever has changed the ledger is about to be answered: now others can be told."""
        self._answered.set()
        self._woken.set()

    def hurry(self) -> None:
        """Somebody waits for masks to be in line."""
        self._urgent.set()
        self._woken.set()

    def relist(self, delay: float) -> None:
        """Ask for the runtime's list in so many seconds: while we connect it may make containers unseen."""
        self._relist_at = time.monotonic() + delay

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception:
                log.exception("defect while masks were brought in line")
            self._stopping.wait(BREATH)

    def _turn(self) -> None:
        if self._woken.wait(self._wait()):
            self._woken.clear()
            self._pause = SOON
        else:
            self._pause = min(2 * self._pause, SLOWEST)
        try:
            self.round()
        finally:
            self._after()

    def _wait(self) -> float:
        now = time.monotonic()
        pause = self._pause if self._registry.unsettled() or self._registry.changed() else PERIOD
        return min(pause, max(0.0, self._relist_at - now), max(0.0, self._looked_at_all + PERIOD - now))

    def round(self) -> None:
        """Do what was left to do, look, and tell the runtime if need be."""
        self._do_later()
        self._registry.reconsider()
        if self._fresh.is_set():
            self._fresh.clear()
            self._backoff = self._not_before = 0.0
        now = time.monotonic()
        everything = now >= self._looked_at_all + PERIOD
        self._looked_at_all = now if everything else self._looked_at_all
        look(self._registry, self._kernel, self._registry.known() if everything else self._registry.to_look_at())
        relist = now >= self._relist_at
        if relist or (self._is_due(now) and now >= self._not_before):
            self._relist_at = float("inf")
            self._attempt(relist)
        if repaired := self._registry.take_repaired():
            self._observer.repaired(repaired)

    def _is_due(self, now: float) -> bool:
        if not self._registry.changed():
            self._since = float("inf")
            self._answered.clear()
            return bool(self._registry.lost())
        self._since = min(self._since, now)
        patience = max(self.patience, 0.0 if self._answered.is_set() else LULL)
        return self._urgent.is_set() or now >= self._since + patience or bool(self._registry.lost())

    def _attempt(self, relist: bool) -> None:
        try:
            if not self._tell(relist):
                return
        except (OSError, CpusatError) as error:
            log.warning("masks could not be brought in line now: %s", error)
            self._hold_back(self._registry.unsettled())
            return
        self._urgent.clear()
        self._answered.clear()
        look(self._registry, self._kernel, self._registry.to_look_at())
        self._hold_back(self._registry.to_look_at())

    def _hold_back(self, failed: Sequence[Container]) -> None:
        """Wait longer and longer before those are told again that do not do what they were told."""
        self._backoff = min(max(FIRST_BACKOFF, 2 * self._backoff), LAST_BACKOFF) if failed else 0.0
        self._not_before = time.monotonic() + self._backoff if failed else 0.0
        if self._backoff > COMPLAIN_AT:
            _complain(failed)

    def _do_later(self) -> None:
        while True:
            try:
                action = self._registry.later.get_nowait()
            except Empty:
                return
            try:
                action()
            except Exception:
                log.exception("what a handler had left to do failed")


def _complain(failed: Sequence[Container]) -> None:
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    may = text_of(failed[0].reach)
    log.warning("%s%s may run on CPUs %s, whatever the runtime is told", failed[0].sight, more, may)
