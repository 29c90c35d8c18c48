"""Folders that last no longer than the process that needs them, even if it is killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """An empty folder among the temporary ones, gone afterwards.

    Its maker holds a lock on it, which ends with the process. Folders of this prefix that nobody holds were left
    by processes that were killed, and are removed here too.
    """
    _sweep(prefix)
    folder, descriptor = _make(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _make(prefix: str) -> tuple[Path, int]:
    """A folder and the lock on it. It is made again if another process took it for a leftover before the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(OSError):
            if (descriptor := _hold(folder)) is not None:
                return folder, descriptor


def _sweep(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (descriptor := _hold(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)


def _hold(folder: Path) -> int | None:
    """A lock on the folder; ``None`` where another process has it. Raises ``OSError`` where there is no folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.lstat()
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor
