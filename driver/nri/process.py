"""The process that answers the container runtime, so that nothing else the driver does can make a handler wait.

Run as ``python -m driver.nri.process PARENT FD``. It connects to the runtime when the driver has sent the ledger,
and leaves it when the other end of the socket is closed.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import SimpleQueue

from driver.conditions import Conditions
from driver.ledger.entry import Owner, Snapshot
from driver.logs import configure
from driver.nri.kernel import Kernel
from driver.nri.messages import (
    MAX_BYTES,
    Answer,
    Change,
    News,
    Order,
    Owned,
    Question,
    Settings,
    State,
    changed,
)
from driver.nri.runtime import NRIRuntime
from driver.processes import confine

ADDRESS_SPACE = 256 * 2**20
"""Bytes. Resident are 36 MB at first, 47 with 2,000 containers and 500 claims; the address space adds 20 MB."""

STACK = 512 * 2**10
"""Bytes of a thread's stack. All of them count as address space."""

WAITERS = 32
"""Questions that may wait for their answers at a time: as many as Prepares that are at work."""


class Outbox:
    """Sends news from a thread of its own: nobody here waits for a driver that does not read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: SimpleQueue[Callable[[], News]] = SimpleQueue()
        threading.Thread(target=self._run, name="news", daemon=True).start()

    def put(self, make: Callable[[], News]) -> None:
        """Send what this makes, in turn. It is made just before it is sent: the last state is the newest."""
        self._waiting.put(make)

    def _run(self) -> None:
        try:
            while True:
                self._connection.send_bytes(self._waiting.get()().encode())
        except OSError:
            return  # The driver has hung up; who reads sees that, too.


class Reporter:
    """Implements ``driver.ports.MaskObserver``."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def repaired(self, containers: int) -> None:
        """Tell the driver, which counts it."""
        self._outbox.put(lambda: News(repaired=containers))


class Side:
    """The runtime's side of the driver, ruled by what the driver sends."""

    def __init__(self, settings: Settings, outbox: Outbox) -> None:
        self._outbox, self._conditions = outbox, Conditions()
        self._snapshot: Snapshot | None = None
        self._waiters = ThreadPoolExecutor(WAITERS, thread_name_prefix="question")
        self._runtime = NRIRuntime(
            settings.nri_socket,
            self._newest,
            self._own,
            self._conditions,
            Reporter(outbox),
            Kernel(settings.cgroup_root),
            self._look,
            self._tell_state,
            self._suspect,
        )
        self._conditions.listen(self._tell_state)

    def take(self, step: Change) -> None:
        """Go by this version of the ledger from now on, and say so."""
        first = self._snapshot is None
        self._snapshot = changed(self._snapshot, step)
        self._outbox.put(lambda: News(acknowledged=step.version))
        if first:
            self._runtime.start()
        self._runtime.changed()

    def answer(self, question: Question) -> None:
        """Answer soon; what may take its time is answered by another thread."""
        if question.about == "settled":
            self._waiters.submit(self._answer, question)
        else:
            self._answer(question)

    def stop(self) -> None:
        """Leave the runtime. Masks stay as they are."""
        self._runtime.stop()
        self._waiters.shutdown(wait=False, cancel_futures=True)

    def _answer(self, question: Question) -> None:
        asked: dict[str, Callable[[], bool]] = {
            "settled": lambda: self._runtime.settle(question.timeout),
            "carries": lambda: self._runtime.carries(question.uid),
            "names": lambda: self._runtime.names(question.uid),
            "alive": lambda: self._snapshot is None or self._runtime.alive(),
        }
        answer = Answer(number=question.number, yes=asked[question.about]())
        self._outbox.put(lambda: News(answer=answer))

    def _newest(self) -> Snapshot:
        assert self._snapshot is not None, "the runtime is joined after the first change"
        return self._snapshot

    def _own(self, uid: str, owner: Owner) -> None:
        self._outbox.put(lambda: News(owned=Owned(uid=uid, owner=owner)))

    def _look(self, uid: str) -> None:
        self._outbox.put(lambda: News(look=uid))

    def _suspect(self) -> None:
        self._outbox.put(lambda: News(suspect=True))

    def _tell_state(self) -> None:
        self._outbox.put(
            lambda: News(state=State(here=self._runtime.wait(0), conditions=self._conditions.current()))
        )


def serve(connection: Connection) -> None:
    """Do as the driver says until it hangs up."""
    settings = Settings.model_validate_json(connection.recv_bytes(MAX_BYTES))
    logging.getLogger().setLevel(settings.log_level)
    outbox = Outbox(connection)
    side = Side(settings, outbox)
    outbox.put(News)
    try:
        while True:
            order = Order.model_validate_json(connection.recv_bytes(MAX_BYTES))
            if order.change:
                side.take(order.change)
            if order.question:
                side.answer(order.question)
    except (EOFError, ConnectionError):
        return
    finally:
        side.stop()


def main() -> None:
    """Run it."""
    configure()
    logging.getLogger("driver.conditions").setLevel(logging.CRITICAL)  # The driver logs those that it is told of.
    parent, socket = map(int, sys.argv[1:])
    confine(parent, ADDRESS_SPACE)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It ends when the driver does, or hangs up.
    threading.stack_size(STACK)
    with Connection(socket) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
