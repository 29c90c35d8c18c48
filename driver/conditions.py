"""What makes serving wrong: while any of it holds, nothing new is prepared, and everybody is told why."""

import logging
import threading
from collections.abc import Callable
from typing import Literal

log = logging.getLogger(__name__)

Condition = Literal[
    "ReservedOffline",
    "FoldersUnwritable",
    "TopologyChanged",
    "StaticCPUManager",
    "NRIAway",
    "LedgerQuarantine",
    "SlicesWithdrawn",
]


class Conditions:
    """The conditions that hold now, with a message each. Safe to use from any thread.

    Listeners are called after each change, without a lock held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[Condition, str] = {}
        self._listeners: list[Callable[[], None]] = []

    def set(self, condition: Condition, message: str) -> None:
        """It holds from now on."""
        with self._lock:
            changed = self._current.get(condition) != message
            self._current[condition] = message
        if changed:
            log.warning("nothing new is prepared: %s: %s", condition, message)
            self._tell()

    def clear(self, condition: Condition) -> None:
        """It holds no longer."""
        with self._lock:
            changed = self._current.pop(condition, None) is not None
        if changed:
            log.info("%s no longer holds", condition)
            self._tell()

    def current(self) -> dict[Condition, str]:
        """All that hold, oldest first."""
        with self._lock:
            return dict(self._current)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def __str__(self) -> str:
        return "; ".join(f"{name}: {message}" for name, message in self.current().items())
