"""Signs that coroutines wait for, given by any thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Ear:
    """What one coroutine has heard since it last forgot it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard: set[str] = set()
        self._rang = asyncio.Event()

    def forget(self) -> None:
        """Whatever was heard so far has been taken account of."""
        self._heard.clear()

    async def wait(self, sign: str, seconds: float) -> None:
        """Until the sign is heard, which it may have been already; at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while sign not in self._heard:
                    self._rang.clear()
                    await self._rang.wait()

    def tell(self, sign: str) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._hear, sign)

    def _hear(self, sign: str) -> None:
        self._heard.add(sign)
        self._rang.set()


class Signs:
    """Tells all who listen."""

    def __init__(self) -> None:
        self._lock, self._ears = threading.Lock(), list[Ear]()

    @contextmanager
    def heard(self) -> Iterator[Ear]:
        """Listen."""
        ear = Ear()
        with self._lock:
            self._ears.append(ear)
        try:
            yield ear
        finally:
            with self._lock:
                self._ears.remove(ear)

    def give(self, sign: str) -> None:
        """Give a sign, from any thread."""
        with self._lock:
            ears = tuple(self._ears)
        for ear in ears:
            ear.tell(sign)
