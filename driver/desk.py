"""Where the kubelet's calls are taken: a coroutine for each claim, and threads only for what is at work."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, TypeVarTuple

from driver.call import Call, Look
from driver.errors import RefusedError
from driver.ledger.entry import Entry
from driver.ports import ClaimRef
from driver.prepare import KNOWN, LOOKS, Preparer, answers
from driver.threads import started_pool

READERS, WORKERS, RELEASERS = 16, 32, 8
"""Threads that ask the API server, that prepare claims, that free their CPUs: who hangs in one does not keep the
others."""

Done = TypeVar("Done")
Told = TypeVarTuple("Told")


class Desk:
    """Implements ``driver.kubelet.service.Prepares`` with a ``Preparer``."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def start(self) -> None:
        """Start the threads. Raises ``RuntimeError`` where they cannot be."""
        self._readers = started_pool(READERS, "read")
        self._workers = started_pool(WORKERS, "prepare")
        self._releasers = started_pool(RELEASERS, "unprepare")

    def stop(self) -> None:
        """Begin nothing more, and wait for what changes claims."""
        for pool in (self._readers, self._workers, self._releasers):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (self._workers, self._releasers):
            pool.shutdown()

    async def prepare(self, ref: ClaimRef) -> Entry:
        """The claim's CPUs and grants. Raises ``RefusedError``."""
        call = Call(ref)
        with self._preparer.reported(ref), _ended_with(call):
            await _in(self._workers, self._preparer.greet)
            for _ in range(LOOKS):
                look = await self._look(call)
                if entry := await _in(self._workers, self._preparer.place, call, look):
                    return entry
            raise RefusedError("Busy", f"claim {ref}: it changes again and again; it is tried again")

    async def unprepare(self, ref: ClaimRef) -> None:
        """Free the claim's CPUs. Raises ``RefusedError``."""
        call = Call(ref)
        with self._preparer.reported(ref), _ended_with(call):
            await _in(self._releasers, self._preparer.free, call)

    async def _look(self, call: Call) -> Look:
        """The claim as the API server has it. Those that the ledger has do not wait long for a thread either."""
        known = answers(self._preparer.known(call.ref))
        try:
            return await asyncio.wait_for(_in(self._readers, self._preparer.look, call), KNOWN if known else None)
        except TimeoutError:
            return self._preparer.unseen(call)


@contextmanager
def _ended_with(call: Call) -> Iterator[None]:
    """What a thread has not begun when the kubelet hangs up is not begun any more."""
    try:
        yield
    except asyncio.CancelledError:
        call.wanted = _never
        raise


def _never() -> bool:
    return False


async def _in(pool: ThreadPoolExecutor, function: Callable[[*Told], Done], *arguments: *Told) -> Done:
    """Call it in a thread of the pool, which logs as we would."""
    context = contextvars.copy_context()
    call = partial(context.run, function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, call)
