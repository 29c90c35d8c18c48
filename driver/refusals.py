"""Why a question was refused before: an identical one about the same free CPUs need not be worked on again."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from driver.errors import Reason, RefusedError
from models import Request

MOST = 256

LASTING: frozenset[Reason] = frozenset({"NotPlaceable", "NoSharedCPU"})
"""They follow from the question alone."""

PASSING, UNDECIDED = "NotDecided", 10.0
"""What more time, or a solver that is ready by then, may change; and seconds after which it is tried again."""


@dataclass(frozen=True)
class Question:
    """Requests to be placed together on the free CPUs, beside the CPUs that the claim itself has named."""

    requests: tuple[Request, ...]
    free: frozenset[int]
    given: frozenset[int] = frozenset()


class Refusals:
    """Remembers the latest refusals. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: OrderedDict[Question, tuple[Reason, str, float]] = OrderedDict()

    def check(self, question: Question) -> None:
        """Raise the ``RefusedError`` with which the question was refused before."""
        with self._lock:
            reason, message, at = self._known.get(question, (None, "", 0.0))
            if reason is None or (reason == PASSING and self._clock() - at > UNDECIDED):
                return
            self._known.move_to_end(question)
        raise RefusedError(reason, message)

    def keep(self, question: Question, error: RefusedError) -> None:
        """Remember it, if it will be the same again."""
        if error.reason not in LASTING and error.reason != PASSING:
            return
        with self._lock:
            self._known[question] = (error.reason, error.message, self._clock())
            self._known.move_to_end(question)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
