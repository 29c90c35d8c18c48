"""Child processes of the driver: each a fresh interpreter of limited size that never outlives the driver.

Parent and child send each other whole messages over a socket: JSON, so that a broken peer cannot run code.
"""

import ctypes
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection

from pydantic import BaseModel, ConfigDict

log = logging.getLogger(__name__)

STUCK = 1.0
"""Seconds that a read or a write may take once it has begun: the other end may be stopped in the midst of it."""

ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
"""Keeps numerical libraries from a thread for each CPU of the node, and from an arena for each thread."""

STDERR = 2

_PR_SET_PDEATHSIG = 1
"""Of ``prctl(2)``."""


class Message(BaseModel):
    """A message, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def encode(self) -> bytes:
        """As it is sent; ``model_validate_json`` reads it."""
        return self.model_dump_json(exclude_defaults=True).encode()


class Child:
    """The parent's hold on one child that runs ``python -m PROGRAM PARENT FD``.

    One thread at a time may send, one may receive, and anyone may ``kill``. The kernel ends the child when the
    *thread* that made this object ends (``confine``).
    """

    def __init__(self, program: str) -> None:
        """Raises ``OSError`` if it cannot be started."""
        self._socket, theirs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with theirs:
            self._process = _spawn(program, theirs.fileno())
        self.pid = self._process.pid
        self.limit(STUCK)

    def limit(self, seconds: float) -> None:
        """How long a single read or write may take from now on."""
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))

    def send(self, message: bytes) -> None:
        """Send it. Raises ``OSError``, ``BlockingIOError`` if the child does not read."""
        self._connection.send_bytes(message)

    def poll(self, timeout: float) -> bool:
        """Wait until there is something to receive, or the child has ended: at most so many seconds."""
        return self._connection.poll(timeout)

    def receive(self, most: int) -> bytes:
        """A message of at most so many bytes.

        Raises ``EOFError`` or ``OSError`` if the child has ended or sends more, ``BlockingIOError`` if it has
        stopped half way.
        """
        return self._connection.recv_bytes(most)

    def hang_up(self) -> None:
        """Send nothing more. A child that reads sees the end, and ends."""
        self._socket.shutdown(socket.SHUT_WR)

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


def _spawn(program: str, descriptor: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter: after a fork it would have the locks of our threads, but not the threads.

    It leads a process group of its own. Should this process end before the other has asked for its parent's death
    signal, the group is orphaned, and the kernel sends SIGHUP and SIGCONT to an orphaned group that is stopped
    (``setpgid(2)``); one that is not stopped sees the end by itself (``confine``).
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", program, str(os.getpid()), str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=STDERR,
        process_group=0,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )


def confine(parent: int, address_space: int, niceness: int = 0) -> None:
    """Called by a child: stay below so many bytes, end with the parent, be so nice.

    Raises ``SystemExit`` if the parent has ended before that was set.
    """
    os.nice(niceness)
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        log.warning("this process sees the end of the driver only when it reads: prctl was refused")
    if os.getppid() != parent:
        raise SystemExit(f"process {parent} has ended")
