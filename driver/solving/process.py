"""The driver's hold on its solver's process: start it, ask it, end it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from driver.processes import STUCK, Child
from driver.solving.messages import MAX_BYTES, READY, Question, Reply
from models import Topology

START_LIMIT = 60.0
"""Seconds from spawn to ready. 0.7 are usual; a cold import under a tight CPU quota takes several."""

PROGRAM = "driver.solving.worker"


class WorkerProcess(Child):
    """One process. Used by one thread at a time, except that anyone may ``kill`` it."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(PROGRAM)
        self._machine = topology.model_dump_json(by_alias=True).encode()

    def is_ready(self) -> bool:
        """Hand over the machine and wait until the process has warmed up. Whether it has."""
        try:
            self.limit(START_LIMIT)
            self.send(self._machine)
            ready = self.poll(START_LIMIT) and self.receive(MAX_BYTES) == READY
            self.limit(STUCK)
        except (OSError, EOFError):
            return False
        return ready

    def ask(self, question: Question, timeout: float) -> Reply | None:
        """The answer, or ``None`` if there is none in so many seconds.

        Raises ``OSError`` or ``EOFError`` if the process ends (``BlockingIOError`` if it stops half way),
        ``ValidationError`` if it talks nonsense.
        """
        with self._ended_after(timeout + STUCK):
            self.send(question.model_dump_json().encode())
            if not self.poll(timeout):
                return None
            return Reply.model_validate_json(self.receive(MAX_BYTES))

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        """Kill the process if what is done meanwhile takes longer: a message can come in drops, each in time."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
