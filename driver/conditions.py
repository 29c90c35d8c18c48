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
    "ExclusiveCPUsUnknown",
    "NRIAway",
    "LedgerQuarantine",
    "SlicesWithdrawn",
]


class Conditions:
    """The conditions that hold now, with a message each. Safe to use from any thread.

    Several parts may say that one condition holds, each under a name of its own (``by``); it holds until all have
    taken it back. Listeners are called after each change, without a lock held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[tuple[Condition, str], str] = {}
        self._listeners: list[Callable[[], None]] = []

    def set(self, condition: Condition, message: str, by: str = "") -> None:
        """It holds from now on."""
        with self._lock:
            changed = self._messages.get((condition, by)) != message
            self._messages[condition, by] = message
        if changed:
            log.warning("nothing new is prepared: %s: %s", condition, message)
            self._tell()

    def clear(self, condition: Condition, by: str = "") -> None:
        """It holds no longer, as far as this part is concerned."""
        with self._lock:
            changed = self._messages.pop((condition, by), None) is not None
        if changed:
            log.info("%s no longer holds", condition)
            self._tell()

    def current(self) -> dict[Condition, str]:
        """All that hold, oldest first."""
        found: dict[Condition, str] = {}
        with self._lock:
            for (condition, _), message in self._messages.items():
                found[condition] = f"{found[condition]}; {message}" if condition in found else message
        return found

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def __str__(self) -> str:
        return "; ".join(f"{name}: {message}" for name, message in self.current().items())
