"""A PID and a mount namespace: whatever runs or is mounted in it is gone when it is closed, or we are killed."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

INIT = "mount -t tmpfs -o mode=755 tmpfs /run && echo ready && cat; exit"
"""The first process: takes in orphans, and ends with its standard input. Runtimes keep sockets in ``/run``."""


class Enclosure:
    """Use it as a context manager. Needs ``unshare`` and ``nsenter`` of util-linux, and root."""

    def __init__(self) -> None:
        flags = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        command = ["unshare", *flags, "sh", "-c", INIT]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout
        if self._holder.stdout.readline() != b"ready\n":
            self.close()
            raise OSError("no namespaces can be made here")

    def __enter__(self) -> "Enclosure":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything in it; nothing of it runs any more when this returns."""
        for stream in (self._holder.stdin, self._holder.stdout):
            assert stream
            stream.close()
        self._holder.wait()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """What it prints. Raises ``CalledProcessError`` with what it says."""
        done = subprocess.run(
            [*self._enter, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout

    def spawn(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> "Enclosed":
        """Start a program that goes on."""
        entered = subprocess.Popen(
            [*self._enter, *command], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        return Enclosed(entered)

    @property
    def _enter(self) -> list[str]:
        spaces = Path("/proc") / str(self._holder.pid) / "ns"
        return ["nsenter", f"--mount={spaces / 'mnt'}", f"--pid={spaces / 'pid_for_children'}", "--"]


class Enclosed:
    """A program within: the child of the ``nsenter`` that we have started."""

    def __init__(self, entered: subprocess.Popen[bytes]) -> None:
        self._entered = entered

    @property
    def pid(self) -> int | None:
        """Its number outside of the enclosure."""
        parent = self._entered.pid
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self._entered.poll() is not None

    def end(self, number: signal.Signals, patience: float = 20.0) -> None:
        """Send a signal that should end it, and wait; kill it if it does not."""
        until = time.monotonic() + patience
        self._signal(number)
        while not self.ended:
            if time.monotonic() > until:
                self._signal(signal.SIGKILL)
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            os.kill(pid, number)


def commands() -> Iterator[str]:
    """Of all processes that run on this machine, in an enclosure or not."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended.
            yield file.read_text()
