"""Masks read by a thread of its own, so that whoever asks waits for a bounded time, whatever the kernel does."""

import logging
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue

log = logging.getLogger(__name__)

ReadMask = Callable[[str], int | None]
"""From a cgroup's path to the kernel's mask, ``None`` where there is none to be read (``driver.nri.kernel``)."""


class Glance:
    """Reads the masks of cgroups, one after the other. Safe to use from any thread.

    A handler that waits for a file is late, and then the runtime lets containers start without us.
    """

    def __init__(self, read: ReadMask) -> None:
        self._read = read
        self._asked: SimpleQueue[_Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nri-glance", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once nobody's files are being read. Does not wait for that: a file may keep the thread for ever."""
        self._asked.put(None)

    def alive(self) -> bool:
        """Whether anybody would be answered."""
        return self._thread.is_alive()

    def __call__(self, cgroups: Mapping[str, str], within: float) -> dict[str, int | None]:
        """Masks by the cgroups' names, of those that could be read within so many seconds."""
        if not cgroups:
            return {}
        question = _Question(cgroups)
        self._asked.put(question)
        question.answered.wait(within)
        question.given_up = True
        return question.masks.copy()

    def _run(self) -> None:
        while (question := self._asked.get()) is not None:
            try:
                self._answer(question)
            except Exception:
                log.exception("defect while masks were read")
            question.answered.set()

    def _answer(self, question: "_Question") -> None:
        for name, cgroup in question.cgroups.items():
            if question.given_up:
                return
            question.masks[name] = self._read(cgroup)


class _Question:
    def __init__(self, cgroups: Mapping[str, str]) -> None:
        self.cgroups, self.masks = cgroups, dict[str, int | None]()
        self.answered, self.given_up = threading.Event(), False
