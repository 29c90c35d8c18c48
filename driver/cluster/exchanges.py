"""Few threads that talk to the API server, so that whoever asks can leave in time, whatever hangs."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

THREADS = 8
"""Exchanges at the same time. Those of Prepare need most; slices, events, status and release have one each."""

MOST_WAITING = 64
"""Calls that wait for a thread. More mean that nothing comes back."""

IDLE = 30.0
"""Seconds after which a thread that has nothing to do ends."""


ENDING = "the driver is ending"


class LateError(Exception):
    """There was no answer in time."""


class _Task(Generic[T]):
    def __init__(self, call: Callable[[float], T], patience: float) -> None:
        self.call, self.end = call, time.monotonic() + patience
        self.future: Future[T] = Future()

    def run(self) -> None:
        """Call, unless nobody waits for it any more."""
        if not self._begin():
            return
        with suppress(InvalidStateError):  # ``close`` was quicker.
            try:
                self.future.set_result(self.call(self.end - time.monotonic()))
            except Exception as error:
                self.future.set_exception(error)

    def _begin(self) -> bool:
        try:
            return self.future.set_running_or_notify_cancel()
        except RuntimeError:  # ``close`` was quicker.
            return False


class Exchanges:
    """Runs calls in threads of its own. These are daemons: a call that never returns does not keep the process."""

    def __init__(self, threads: int = THREADS) -> None:
        self._most = threads
        self._tasks: queue.Queue[_Task[Any]] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._waited_for: set[_Task[Any]] = set()
        self._threads = self._unfinished = 0
        self._closed = False

    def run(self, call: Callable[[float], T], patience: float) -> T:
        """What the call returns or raises; it is told how many seconds it has. Raises ``LateError`` after
        ``patience`` seconds, or when too many wait."""
        task = _Task(call, patience)
        try:
            self._submit(task)
            if not wait([task.future], patience).done:
                raise LateError(f"the exchange is not complete after {patience:g} s")
            return task.future.result()
        finally:
            task.future.cancel()
            with self._lock:
                self._waited_for.discard(task)

    def close(self) -> None:
        """Wake all who wait, and run nothing from now on."""
        with self._lock:
            self._closed = True
            waiting = list(self._waited_for)
        for task in waiting:
            with suppress(InvalidStateError):
                task.future.set_exception(LateError(ENDING))

    def _submit(self, task: _Task[Any]) -> None:
        with self._lock:
            if self._closed:
                raise LateError(ENDING)
            try:
                self._tasks.put_nowait(task)
            except queue.Full:
                raise LateError(f"{MOST_WAITING} requests to the API server wait already") from None
            self._unfinished += 1
            self._waited_for.add(task)
            if self._threads < min(self._unfinished, self._most):
                self._start_thread()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="api", daemon=True).start()
            self._threads += 1
        except RuntimeError:
            if not self._threads:
                raise LateError("no thread can be started to ask the API server") from None

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            del task
            with self._lock:
                self._unfinished -= 1

    def _next(self) -> _Task[Any] | None:
        """What to do next; ``None`` after a while without anything."""
        while True:
            with suppress(queue.Empty):
                return self._tasks.get(timeout=IDLE)
            with self._lock:
                if self._tasks.empty():
                    self._threads -= 1
                    return None
