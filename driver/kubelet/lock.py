"""Only one driver serves a node at a time: a new pod waits for the old one's lock before it binds anything."""

import fcntl
import logging
import os
from pathlib import Path
from threading import Event

from models import BadInputError

log = logging.getLogger(__name__)

PERIOD = 0.2
"""Seconds between two tries. Waiting inside ``flock`` could not be called off."""


class NodeLock:
    """A lock on a folder, which is held until ``release`` or until the process ends, however it ends.

    No file in the folder is locked: who cleared the folder out would let another driver in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self, stopped: Event | None = None) -> bool:
        """Wait for it; ``False`` if ``stopped`` was set meanwhile. Raises ``BadInputError`` if there can be no
        folder."""
        stopped, told = stopped or Event(), False
        self._descriptor = _open(self._folder)
        while not _lock(self._descriptor):
            if not told:
                log.info("another driver serves this node; waiting for it to end (%s)", self._folder)
                told = True
            if stopped.wait(PERIOD):
                self.release()
                return False
        return True

    def release(self) -> None:
        """Let go of it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BadInputError(
            f"the folder to be locked cannot be opened: {error.strerror}", file=str(folder)
        ) from None


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
