"""Child processes of the driver: each a fresh interpreter of limited size that never outlives the driver.

Parent and child send each other whole messages over a socket: JSON, so that a broken peer cannot run code.
"""

import ctypes
import logging
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from pydantic import BaseModel, ConfigDict

log = logging.getLogger(__name__)

STUCK = 5.0
"""Seconds that a whole message may take once it has begun: the other end may be stopped in the midst of it, or
send it in drops."""

SIZE, CHUNK = struct.Struct("!i"), 1 << 20
"""How a message begins: with its size, as ``multiprocessing.connection`` does, which is the child's end."""

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
        with theirs:
            self._process = _spawn(program, theirs.fileno())
        self.pid = self._process.pid

    def send(self, message: bytes, seconds: float = STUCK) -> None:
        """Send it. Raises ``OSError``, ``BlockingIOError`` if the child has not taken it in so many seconds."""
        end, rest = time.monotonic() + seconds, memoryview(SIZE.pack(len(message)) + message)
        while rest:
            self._await(select.POLLOUT, end)
            rest = rest[self._socket.send(rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]

    def poll(self, timeout: float) -> bool:
        """Wait until there is something to receive, or the child has ended: at most so many seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * max(0.0, timeout)))

    def receive(self, most: int, seconds: float = STUCK) -> bytes:
        """A message of at most so many bytes.

        Raises ``EOFError`` or ``OSError`` if the child has ended or sends more, ``BlockingIOError`` if it has not
        sent all of it in so many seconds.
        """
        end = time.monotonic() + seconds
        (size,) = SIZE.unpack(self._read(SIZE.size, end))
        if not 0 <= size <= most:
            raise OSError(f"a message of {size} bytes, and {most} are the most")
        return self._read(size, end)

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
        self._socket.close()

    def _read(self, size: int, end: float) -> bytes:
        read = bytearray()
        while len(read) < size:
            self._await(select.POLLIN, end)
            part = self._socket.recv(min(size - len(read), CHUNK), socket.MSG_DONTWAIT)
            if not part:
                raise EOFError
            read += part
        return bytes(read)

    def _await(self, event: int, end: float) -> None:
        """Wait until the socket can be read or written."""
        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll(1000 * max(0.0, end - time.monotonic())):
            raise BlockingIOError("a message is not complete in time")


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
