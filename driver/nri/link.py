"""One process that answers the container runtime, from its start to its end, as the driver holds it."""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import NoReturn

from driver.ledger.entry import Snapshot
from driver.nri.messages import MAX_BYTES, About, News, Order, Question, Settings, change
from driver.processes import Child

PROGRAM = "driver.nri.process"

START_LIMIT = 30.0
"""Seconds from spawn to ready. 0.5 are usual; a cold import under a tight CPU quota takes several."""

PERIOD, HUNG = 1.0, 3.0
"""Seconds between two questions whether it is alive, and those in which it must answer. The runtime, which waits
for 2 s, has dropped it by then."""

GLANCE = 0.2
"""Seconds of waiting for a message at a time."""

GRACE = 1.0
"""Seconds in which an answer comes that needs no waiting."""

SENDING = 1.0
"""Seconds in which the process must read what it is sent: a Prepare waits for that."""

ALIVE = 0
"""The number of questions that ``listen`` asks for itself."""


class GoneError(Exception):
    """The process is of no use any more. The message says why."""


class Link:
    """Any thread may show, ask and kill; one listens, the one that made this object: the process ends with it.

    ``acknowledged``: the version of the ledger by which the runtime is answered, below zero for none.
    """

    def __init__(self, settings: Settings, hear: Callable[[News], None]) -> None:
        """Start it. ``hear``: called with all that it says; the first news is that it is ready.

        Raises ``OSError``.
        """
        self.acknowledged = -1
        self._hear = hear
        self._child = Child(PROGRAM)
        self.pid, self.kill = self._child.pid, self._child.kill
        self._child.send(settings.encode())
        self._lock = threading.Lock()
        """Held by who sends, or closes."""
        self._open = False
        self._shown: Snapshot | None = None
        self._numbers = itertools.count(ALIVE + 1)
        self._asked: dict[int, Future[bool | None]] = {}
        self._alive_asked = self._alive_answered = 0.0

    def show(self, newest: Callable[[], Snapshot]) -> None:
        """Send what is new in the ledger since it was shown last. Nothing happens before the process is ready."""
        with self._lock:
            snapshot = newest()
            if snapshot is not self._shown and self._send(Order(change=change(self._shown, snapshot))):
                self._shown = snapshot

    def ask(self, about: About, uid: str = "", timeout: float = 0.0) -> bool | None:
        """Its answer; ``None`` if it gives none. ``timeout``: seconds that it may wait for a yes (``settled``)."""
        number, reply = next(self._numbers), Future[bool | None]()
        self._asked[number] = reply
        try:
            with self._lock:
                sent = self._send(Order(question=Question(number=number, about=about, uid=uid, timeout=timeout)))
            return reply.result(timeout + GRACE) if sent else None
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    def listen(self, meanwhile: Callable[[], None]) -> NoReturn:
        """Hear what it says, and whether it lives, until it is of no use any more. ``meanwhile`` is called all the
        time.

        Raises ``GoneError``; ``OSError`` or ``EOFError`` if it ends, ``ValidationError`` if it talks nonsense.
        """
        self._await_ready(meanwhile)
        self._open = True
        self._alive_asked = self._alive_answered = time.monotonic()
        while True:
            if self._child.poll(GLANCE):
                self._take(News.model_validate_json(self._child.receive(MAX_BYTES)))
            elif self._alive_answered < self._alive_asked < time.monotonic() - HUNG:
                raise GoneError(f"it gave no sign of life for {HUNG:.0f} s")
            self._ask_if_alive()
            meanwhile()

    def _await_ready(self, meanwhile: Callable[[], None]) -> None:
        end = time.monotonic() + START_LIMIT
        while not self._child.poll(GLANCE):
            meanwhile()
            if time.monotonic() > end:
                raise GoneError(f"it was not ready within {START_LIMIT:.0f} s")

    def hang_up(self) -> None:
        """Have it leave the runtime and end."""
        with self._lock:
            self._open = False
            with suppress(OSError):  # It has been closed already.
                self._child.hang_up()

    def close(self) -> int:
        """End it at once, and wait until it has. Its exit code, negative for the signal that ended it."""
        self._child.kill()
        code = self._child.wait()
        with self._lock:
            self._open = False
            self._child.close()
        for reply in list(self._asked.values()):
            if not reply.done():
                reply.set_result(None)
        return code

    def _send(self, order: Order) -> bool:
        """Send it, by who has the lock. Whether it was sent: a process that does not read is ended."""
        if not self._open:
            return False
        try:
            self._child.send(order.encode(), SENDING)
        except OSError:
            self._open = False
            self._child.kill()
        return self._open

    def _take(self, news: News) -> None:
        if news.acknowledged is not None:
            self.acknowledged = news.acknowledged
        if answer := news.answer:
            if answer.number == ALIVE:
                self._alive_answered = time.monotonic()
                if not answer.yes:
                    raise GoneError("one of its threads has ended")
            elif reply := self._asked.get(answer.number):
                reply.set_result(answer.yes)
        self._hear(news)

    def _ask_if_alive(self) -> None:
        now = time.monotonic()
        if self._alive_asked <= self._alive_answered and now > self._alive_asked + PERIOD:
            self._alive_asked = now
            with self._lock:
                self._send(Order(question=Question(number=ALIVE, about="alive")))
