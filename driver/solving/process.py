"""The driver's hold on its solver's process: start it, ask it, end it."""

from driver.processes import Child
from driver.solving.messages import MAX_BYTES, READY, Question, Reply
from models import Topology

START_LIMIT = 60.0
"""Seconds from spawn to ready. 0.7 are usual; a cold import under a tight CPU quota takes several."""

TRANSFER = 1.0
"""Seconds for a question to be taken, or for an answer to come once it has begun."""

PROGRAM = "driver.solving.worker"


class WorkerProcess(Child):
    """One process. Used by one thread at a time, except that anyone may ``kill`` it."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(PROGRAM)
        self._machine = topology.model_dump_json(by_alias=True).encode()

    def is_ready(self) -> bool:
        """Hand over the machine and wait until the process has warmed up. Whether it has."""
        try:
            self.send(self._machine, START_LIMIT)
            return self.poll(START_LIMIT) and self.receive(MAX_BYTES) == READY
        except (OSError, EOFError):
            return False

    def ask(self, question: Question, timeout: float) -> Reply | None:
        """The answer, or ``None`` if there is none in so many seconds.

        Raises ``OSError`` or ``EOFError`` if the process ends (``BlockingIOError`` if it stops half way),
        ``ValidationError`` if it talks nonsense.
        """
        self.send(question.model_dump_json().encode(), TRANSFER)
        if not self.poll(timeout):
            return None
        return Reply.model_validate_json(self.receive(MAX_BYTES, TRANSFER))
