"""One lock per claim: who changes a claim holds its lock, and nobody else's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class BusyError(Exception):
    """Somebody else holds the key's lock."""


class Locks:
    """Locks by key, there as long as somebody holds or wants them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._users: dict[str, int] = {}

    @contextmanager
    def of(self, key: str, timeout: float = -1) -> Iterator[None]:
        """Hold the key's lock. Raises ``BusyError`` when it could not be had for so many seconds."""
        lock = self._wanted(key)
        try:
            if not lock.acquire(timeout=timeout):
                raise BusyError(key)
            try:
                yield
            finally:
                lock.release()
        finally:
            self._dropped(key)

    def _wanted(self, key: str) -> threading.Lock:
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            return self._locks.setdefault(key, threading.Lock())

    def _dropped(self, key: str) -> None:
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
