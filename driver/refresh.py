"""Looks at claims again when the ledger may be behind the API server: soon, in a thread, and not too often."""

import logging
import threading
import time
from collections.abc import Callable

from driver.errors import RefusedError

log = logging.getLogger(__name__)

QUIET = 1.0
"""Seconds between two looks at one claim. The kubelet creates a refused container again after some seconds."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before the next look after one that the API server has not answered, doubled each time."""

MOST = 4096
"""Claims that may wait for a look; a node has fewer CPUs than that to give."""


class Refresher:
    """A thread that looks at one claim after the other.

    ``look`` does it; it may raise ``RefusedError``. After ``ApiAway`` and ``Busy`` it is tried again.
    """

    def __init__(self, look: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._due: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._pause, self._rest_until = 0.0, 0.0
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look at nothing more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def ask(self, uid: str) -> None:
        """Look at the claim soon, once, however often it is asked for meanwhile. Returns at once."""
        with self._changed:
            if uid not in self._due and len(self._due) < MOST:
                self._due[uid] = self._looked.get(uid, self._clock() - QUIET) + QUIET
                self._changed.notify_all()

    def _run(self) -> None:
        while (uid := self._next()) is not None:
            try:
                self._look(uid)
                self._pause = 0.0
            except RefusedError as error:
                self._failed(uid, error)
            except Exception:
                log.exception("claim %s could not be looked at", uid)

    def _next(self) -> str | None:
        """Wait for the next claim to be looked at; ``None`` at the end."""
        with self._changed:
            while not self._stopping:
                now = self._clock()
                uid, due = min(self._due.items(), key=lambda item: item[1], default=("", now + QUIET))
                wait = max(due, self._rest_until) - now
                if uid and wait <= 0:
                    del self._due[uid]
                    self._looked = {each: at for each, at in self._looked.items() if at > now - QUIET}
                    self._looked[uid] = now
                    return uid
                self._changed.wait(wait if uid else None)
        return None

    def _failed(self, uid: str, error: RefusedError) -> None:
        log.warning("claim %s is behind the API server, perhaps: %s", uid, error)
        if error.reason in ("ApiAway", "Busy"):
            self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
            self._rest_until = self._clock() + self._pause
            self.ask(uid)
