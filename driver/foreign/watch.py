"""Keeps the ledger, and everybody who asks, informed of what the kubelet's CPU manager has given away."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from driver.conditions import Conditions
from driver.foreign.look import UnreadableError, complaint
from driver.ledger.book import Ledger
from driver.ledger.foreign import Foreign

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two looks."""

GAP = 0.5
"""Seconds between two looks that somebody has asked for."""

PATIENCE = 30.0
"""Seconds for which the last answer is good: while the kubelet starts anew it gives nothing away."""

SOURCE = "kubelet"
"""The name under which conditions are set here."""


class ForeignWatch:
    """A thread that looks every ten seconds, and when there is cause. ``look``: asks the kubelet."""

    def __init__(
        self,
        look: Callable[[], Foreign],
        ledger: Ledger,
        conditions: Conditions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._ledger, self._conditions, self._clock = look, ledger, conditions, clock
        self._answered: float | None = None
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="foreign", daemon=True)

    def start(self) -> None:
        """Look, then go on looking. Returns after the first look: who comes next relies on what it has found."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """There is cause to look. Returns at once."""
        self._woken.set()

    def look(self) -> None:
        """Ask the kubelet, tell the ledger, and set or clear the conditions."""
        try:
            self._ledger.set_foreign(self._look())
        except UnreadableError as error:
            self._not_answered(error)
        else:
            self._answered = self._clock()
            self._conditions.clear("ExclusiveCPUsUnknown")
        self._judge()

    def _not_answered(self, error: UnreadableError) -> None:
        if self._answered is not None and self._clock() - self._answered < PATIENCE:
            log.info("the last answer holds for now: %s", error)
            return
        self._ledger.set_foreign(replace(self._ledger.snapshot.foreign, known=False))
        self._conditions.set("ExclusiveCPUsUnknown", str(error))

    def _judge(self) -> None:
        if why := complaint(self._ledger.snapshot):
            self._conditions.set("StaticCPUManager", why, SOURCE)
        else:
            self._conditions.clear("StaticCPUManager", SOURCE)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait(PERIOD)
            self._woken.clear()
            if self._stopping.is_set():
                return
            try:
                self.look()
            except Exception:
                log.exception("the kubelet's CPU manager could not be looked at")
            self._stopping.wait(GAP)
