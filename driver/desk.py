"""Where the kubelet's calls are taken: a coroutine for each claim, and threads only for what is at work.

A claim that cannot be served now waits here if waiting may help: the kubelet would try again only after a minute.
Who waits holds no thread and no lock.
"""

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, TypeVarTuple

from driver.call import Call, Look
from driver.errors import RefusedError
from driver.hope import CONDITIONS, CPUS, CPUS_LACK, Hope, Hopes, end_of_call
from driver.ledger.entry import Entry
from driver.ports import ClaimRef
from driver.prepare import KNOWN, LOOKS, Preparer, answers
from driver.signs import Ear, Signs
from driver.threads import started_pool

log = logging.getLogger(__name__)

READERS, WORKERS, RELEASERS = 16, 32, 8
"""Threads that ask the API server, that prepare claims, that free their CPUs: who hangs in one does not keep the
others."""

LONGEST = 20.0
"""Seconds after which a call tries nothing more; twice that if it waits for another call about its claim. The
kubelet gives up after 45, of which the API server may take 10. Claims that are let go leave within a few."""

MOST_WAITING = 64
"""Calls that wait at the same time; more of them are refused at once."""

Done = TypeVar("Done")
Told = TypeVarTuple("Told")


class Desk:
    """Implements ``driver.kubelet.service.Prepares`` with a ``Preparer``. ``longest``: see ``LONGEST``."""

    def __init__(self, preparer: Preparer, longest: float = LONGEST) -> None:
        self._preparer, self._hopes, self._longest = preparer, Hopes(preparer), longest
        self._signs, self._waiting, self._under_way = Signs(), 0, Counter[str]()
        self._free = preparer.ledger.snapshot.free

    def start(self) -> None:
        """Start the threads. Raises ``RuntimeError`` where they cannot be."""
        self._readers = started_pool(READERS, "read")
        self._workers = started_pool(WORKERS, "prepare")
        self._releasers = started_pool(RELEASERS, "unprepare")
        self._preparer.ledger.listen(self._changed)
        self._preparer.conditions.listen(lambda: self._signs.give(CONDITIONS))

    def stop(self) -> None:
        """Begin nothing more, and wait for what changes claims."""
        for pool in (self._readers, self._workers, self._releasers):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (self._workers, self._releasers):
            pool.shutdown()

    async def prepare(self, ref: ClaimRef) -> Entry:
        """The claim's CPUs and grants. Raises ``RefusedError``."""
        return await self._served(ref, self._prepare)

    async def unprepare(self, ref: ClaimRef) -> None:
        """Free the claim's CPUs. Raises ``RefusedError``."""
        await self._served(ref, lambda call: _in(self._releasers, self._preparer.free, call))

    async def _served(self, ref: ClaimRef, attempt: Callable[[Call], Awaitable[Done]]) -> Done:
        """What the attempt comes to, sooner or later."""
        call = Call(ref)
        with self._preparer.reported(call), self._at_work(call), self._signs.heard() as ear:
            told: Hope | None = None
            while True:
                ear.forget()
                call.free = self._preparer.ledger.snapshot.free
                try:
                    return await attempt(call)
                except RefusedError as error:
                    hope = await self._hope(call, error)
                    if hope is None:
                        raise _after(error, told) from None
                    self._tell(call, hope, told, error)
                    told = hope
                await self._wait(call, hope, ear)

    async def _prepare(self, call: Call) -> Entry:
        for _ in range(LOOKS):
            look = await self._look(call)
            call.view = look.view
            if entry := await _in(self._workers, self._preparer.place, call, look):
                return entry
        raise RefusedError("Busy", f"claim {call.ref}: it changes again and again; it is tried again")

    async def _look(self, call: Call) -> Look:
        """The claim as the API server has it. Those that the ledger has do not wait long for a thread either."""
        longest = KNOWN + 0.5 if answers(self._preparer.known(call.ref)) else None
        try:
            return await asyncio.wait_for(_in(self._readers, self._preparer.look, call), longest)
        except TimeoutError:
            return self._preparer.unseen(call)

    async def _hope(self, call: Call, error: RefusedError) -> Hope | None:
        longest = self._longest if error.reason != "Busy" else 2 * self._longest
        if call.age >= longest or self._waiting >= MOST_WAITING:
            return None
        if error.reason in CPUS_LACK:
            others = self._under_way.keys() - {call.ref.uid}
            return await _in(self._readers, self._hopes.of_cpus, call, error, others)
        return self._hopes.of(call.ref, error)

    def _tell(self, call: Call, hope: Hope, told: Hope | None, error: RefusedError) -> None:
        """Say it once for each thing that is waited for."""
        if told is not None and told.what == hope.what:
            return
        log.info("claim %s waits for %s: %s", call.ref, hope.what, error.message)
        if error.reason != "Busy":
            note = f"waits up to {self._longest:.0f} s for {hope.what}: {error.message}"
            self._preparer.teller.tell(call.ref, "Note", note, warning=False)

    async def _wait(self, call: Call, hope: Hope, ear: Ear) -> None:
        self._waiting += 1
        try:
            with call.stage("wait"):
                await ear.wait(hope.sign, hope.pause)
        finally:
            self._waiting -= 1

    @contextmanager
    def _at_work(self, call: Call) -> Iterator[None]:
        """What a thread has not begun when the kubelet hangs up is not begun any more."""
        self._under_way[call.ref.uid] += 1
        try:
            yield
        except asyncio.CancelledError:
            call.wanted = _never
            raise
        finally:
            self._under_way[call.ref.uid] -= 1
            self._under_way += Counter()
            self._signs.give(end_of_call(call.ref.uid))

    def _changed(self) -> None:
        """The ledger has changed. Called by several threads at once; a sign that is missed costs a pause."""
        former, self._free = self._free, self._preparer.ledger.snapshot.free
        if self._free - former:
            self._signs.give(CPUS)


def _after(error: RefusedError, told: Hope | None) -> RefusedError:
    """The refusal, which says what was waited for in vain."""
    if told is None:
        return error
    return RefusedError(error.reason, f"{error.message} (after waiting for {told.what})")


def _never() -> bool:
    return False


async def _in(pool: ThreadPoolExecutor, function: Callable[[*Told], Done], *arguments: *Told) -> Done:
    """Call it in a thread of the pool, which logs as we would."""
    context = contextvars.copy_context()
    call = partial(context.run, function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, call)
