"""The driver's hold on its solver's process: start it, ask it, end it."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from driver.solving.messages import MAX_BYTES, READY, Question, Reply
from driver.solving.worker import ENVIRONMENT
from models import Topology

START_LIMIT = 60.0
"""Seconds from spawn to ready. 0.7 are usual; a cold import under a tight CPU quota takes several."""

STUCK = 1.0
"""Seconds that a read or a write may take once it has begun: the other end may be stopped in the midst of it."""

PROGRAM = "driver.solving.worker"
STDERR = 2


class WorkerProcess:
    """One process. Used by one thread at a time, except that anyone may ``kill`` it.

    The kernel ends the process when the *thread* that made this object ends (``PR_SET_PDEATHSIG``).
    """

    def __init__(self, topology: Topology) -> None:
        self._socket, theirs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with theirs:
            self._process = _spawn(theirs.fileno())
        self.pid = self._process.pid
        self._machine = topology.model_dump_json(by_alias=True).encode()

    def is_ready(self) -> bool:
        """Hand over the machine and wait until the process has warmed up. Whether it has."""
        try:
            self._limit(START_LIMIT)
            self._connection.send_bytes(self._machine)
            ready = self._connection.poll(START_LIMIT) and self._connection.recv_bytes(MAX_BYTES) == READY
            self._limit(STUCK)
        except (OSError, EOFError):
            return False
        return ready

    def ask(self, question: Question, timeout: float) -> Reply | None:
        """The answer, or ``None`` if there is none in so many seconds.

        Raises ``OSError`` or ``EOFError`` if the process ends (``BlockingIOError`` if it stops half way),
        ``ValidationError`` if it talks nonsense.
        """
        with self._ended_after(timeout + STUCK):
            self._connection.send_bytes(question.model_dump_json().encode())
            if not self._connection.poll(timeout):
                return None
            return Reply.model_validate_json(self._connection.recv_bytes(MAX_BYTES))

    def kill(self) -> None:
        """End it at once, stopped or not."""
        self._process.kill()

    def wait(self) -> int:
        """Wait until it has ended: its exit code, negative for the signal that ended it."""
        return self._process.wait()

    def close(self) -> None:
        """Give the socket back."""
        self._connection.close()
        self._socket.close()

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        """Kill the process if what is done meanwhile takes longer: a message can come in drops, each in time."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _limit(self, seconds: float) -> None:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter: after a fork it would have the locks of our threads, but not the threads.

    It leads a process group of its own. Should this process end before the other has asked for its parent's death
    signal, the group is orphaned, and the kernel sends SIGHUP and SIGCONT to an orphaned group that is stopped
    (``setpgid(2)``); one that is not stopped sees the end by itself (``worker.confine``).
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", PROGRAM, str(os.getpid()), str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=STDERR,
        process_group=0,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
