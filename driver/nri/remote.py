"""The container runtime, as the rest of the driver sees it, where a process of its own answers it."""

import logging
import threading
import time
from collections.abc import Callable

from pydantic import ValidationError

from driver.conditions import Conditions
from driver.ledger.entry import Owner, Snapshot
from driver.nri.link import ALIVE, START_LIMIT, GoneError, Link
from driver.nri.messages import About, News, Settings
from driver.nri.standing import Standing
from driver.nri.static_manager import nobody_asks
from driver.ports import MaskObserver

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE, HEALTHY = 0.1, 5.0, 10.0
"""Seconds before another process is started: none if the last one lived for the third, else the first, doubled up
to the second."""

SILENCE = 2 * START_LIMIT
"""Seconds without a sign of life after which the whole driver had better be started again."""

LEAVING = 2.0
"""Seconds in which the process leaves the runtime at the driver's end."""


class RemoteRuntime:
    """Implements ``driver.ports.Runtime`` by ``driver.nri.runtime.NRIRuntime`` in a process of its own.

    ``start`` starts the process; it connects to the runtime after ``join``. It goes by the ledger as it was shown
    last; ``knows`` waits until that is the newest.
    """

    def __init__(self, settings: Settings, conditions: Conditions, observer: MaskObserver) -> None:
        self._settings, self._observer, self._standing = settings, observer, Standing(conditions)
        self._link: Link | None = None
        self._snapshot: Callable[[], Snapshot] | None = None
        self._stopping, self._progress = threading.Event(), threading.Condition()
        self._heard = time.monotonic()
        self._keeper = threading.Thread(target=self._keep, name="nri", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        link = self._link
        return None if link is None else link.pid

    def start(self) -> None:
        """Have the process started. Returns at once."""
        self._heard = time.monotonic()
        self._keeper.start()

    def join(
        self,
        snapshot: Callable[[], Snapshot],
        own: Callable[[str, Owner], None],
        look: Callable[[str], None],
        suspect: Callable[[], None] = nobody_asks,
    ) -> None:
        """Connect to the runtime, and stay connected. The arguments are those of ``NRIRuntime``."""
        self._own, self._look, self._suspect = own, look, suspect
        self._snapshot = snapshot
        self.changed()

    def stop(self) -> None:
        """Leave the runtime. Masks stay as they are."""
        self._stopping.set()
        if self._link is not None:
            self._link.hang_up()
        if self._keeper.is_alive():
            self._keeper.join(LEAVING)
        if self._link is not None:
            self._link.kill()
        if self._keeper.is_alive():
            self._keeper.join()

    def wait(self, timeout: float) -> bool:
        """Wait for the runtime's list, at most so many seconds. Whether it has come."""
        return self._standing.here.wait(timeout)

    def alive(self) -> bool:
        """Whether the process has shown signs of life lately, or another one can still be expected."""
        return self._keeper.is_alive() and time.monotonic() - self._heard < SILENCE

    def changed(self) -> None:
        """The ledger has a new snapshot: show it. Returns soon, whatever the process is at."""
        link, snapshot = self._link, self._snapshot
        if link is not None and snapshot is not None:
            link.show(snapshot)

    def knows(self, timeout: float) -> bool:
        """Wait until the runtime is answered by the ledger as it is now, at most so long (seconds). A process that
        has taken over from another must have the runtime's list, too, or have found that the runtime is away."""
        if self._snapshot is None:
            return False
        version = self._snapshot().version
        self.changed()
        with self._progress:
            return self._progress.wait_for(lambda: self._is_known(version), timeout)

    def settle(self, timeout: float) -> bool:
        """See ``driver.ports.Runtime``. Nothing is settled while nobody can say so."""
        self.changed()
        return self._ask("settled", timeout=timeout) or False

    def carries(self, uid: str) -> bool:
        """Whether a container that has not stopped carries the claim. While nobody can say, one may."""
        return self._ask("carries", uid) is not False

    def names(self, uid: str) -> bool:
        """Whether a container that has not stopped names the claim. While nobody can say, one may."""
        return self._ask("names", uid) is not False

    def _ask(self, about: About, uid: str = "", timeout: float = 0.0) -> bool | None:
        link = self._link
        return None if link is None else link.ask(about, uid, timeout)

    def _is_known(self, version: int) -> bool:
        link = self._link
        return link is not None and link.acknowledged >= version and not self._standing.taking_over

    # What the keeper does

    def _keep(self) -> None:
        """Start a process, again whenever it has ended. This thread must live as long as the process is to."""
        pause = 0.0
        while not self._stopping.wait(pause):
            began = time.monotonic()
            why = self._run()
            self._judge()
            lived = time.monotonic() - began
            pause = 0.0 if lived > HEALTHY else min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
            if not self._stopping.is_set():
                log.warning("the process that answers the container runtime has ended, a new one starts: %s", why)

    def _run(self) -> str:
        """One process, from its start to its end. Why it has ended."""
        try:
            link = self._link = Link(self._settings, self._hear)
        except OSError as error:
            self._standing.ended()
            return f"it cannot be started: {error}"
        why = "the driver stops" if self._stopping.is_set() else self._listen(link)
        self._link = None
        self._standing.ended()
        return f"{why} (exit code {link.close()})"

    def _listen(self, link: Link) -> str:
        try:
            link.listen(self._judge)
        except GoneError as error:
            return str(error)
        except ValidationError as error:
            return f"it talks nonsense: {error.errors()[0]['msg']}"
        except (OSError, EOFError) as error:
            return f"nothing more came from it: {str(error) or 'it has ended'}"
        except Exception:
            log.exception("defect while the process that answers the container runtime was heard")
            return "what it said could not be dealt with"

    def _hear(self, news: News) -> None:
        """What the process says. Its first news has nothing in it but says that it is ready."""
        if news == News():
            self.changed()
        if news.answer and news.answer.number == ALIVE:
            self._heard = time.monotonic()
        if news.state:
            self._standing.take(news.state)
        if news.repaired:
            self._observer.repaired(news.repaired)
        if news.owned:
            self._own(news.owned.uid, news.owned.owner)
            self.changed()
        if news.look:
            self._look(news.look)
        if news.suspect:
            self._suspect()
        if news.acknowledged is not None or news.state:
            with self._progress:
                self._progress.notify_all()

    def _judge(self) -> None:
        if self._snapshot is not None:
            self._standing.judge()
