"""One lock per claim: who changes a claim holds its lock, and nobody else's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Locks:
    """Locks by key, there as long as somebody holds or wants them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._users: dict[str, int] = {}

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Hold the key's lock."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
            self._users[key] = self._users.get(key, 0) + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._locks[key]
