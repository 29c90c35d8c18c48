"""A driver that is killed between two effects that last, though it is in this process."""

import errno
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from driver.kubelet.serve import KubeletServer
from driver.nri.remote import RemoteRuntime
from driver.nri.runtime import NRIRuntime
from driver.serve import Driver, _Closing


class Death:
    """Kills the driver at a later flush of a file or folder: before it, and before all that would come after.

    Threads that come to a flush from then on wait in it until ``bury``; they can do nothing before that, not even
    undo what they did. ``grave``: a folder in which they write until then, and may clean up afterwards.
    """

    def __init__(self, driver: Driver, grave: Path) -> None:
        self.driver, self.grave = driver, grave
        self.came = threading.Event()
        self._left = 0
        self._armed, self._buried = False, threading.Event()
        self._lock = threading.Lock()
        self._stores = (driver.ledger._files, driver.cdi, driver.cdi._metadata)
        for store in self._stores:
            store._sync = self._flush

    def arm(self, flushes: int) -> None:
        """It comes at the flush of this number, counted from 1."""
        with self._lock:
            self._left, self._armed = flushes, True

    def come(self) -> None:
        """It comes now, if it has not yet. The kernel closes what the process had open, but leaves its files."""
        with self._lock:
            self._strike()
        for part in reversed(self.driver._running):
            if isinstance(part, KubeletServer):
                _hang_up(part)
            elif isinstance(part, NRIRuntime):
                part.stop()
            elif isinstance(part, RemoteRuntime):
                _kill(part)
        self.driver._lock.release()

    def bury(self) -> None:
        """Let its threads end."""
        self._buried.set()
        self.driver.stopped.set()
        for part in reversed(self.driver._running):
            if not isinstance(part, _Closing):
                part.stop()
        self.driver.ledger.close()

    def _flush(self, handle: int) -> None:
        with self._lock:
            self._left -= 1
            if self._armed and self._left <= 0:
                self._strike()
        if self.came.is_set():
            self._buried.wait()
            raise OSError(errno.EIO, "the driver is dead")
        os.fsync(handle)

    def _strike(self) -> None:
        self.grave.mkdir(exist_ok=True)
        for store in self._stores:
            store.folder = self.grave
        self.driver.cdi._metadata.specs = self.grave
        self.came.set()


def _kill(remote: RemoteRuntime) -> None:
    """As the kernel does it when the thread ends that started the process."""
    remote._stopping.set()
    if remote._link is not None:
        remote._link.kill()
    remote._keeper.join()


def _hang_up(kubelet: KubeletServer) -> None:
    paths = [door.path for door in kubelet._doors()]
    kubelet._stopping.set()
    kubelet._serving.close(0.0)
    for path in paths:
        _leave_socket(path)


def _leave_socket(path: Path) -> None:
    """What a killed server leaves: a socket at which nobody listens."""
    with suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
