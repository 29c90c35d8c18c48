"""Files that survive a kill or a power cut: whole or not there, never torn."""

import os
from collections.abc import Callable
from pathlib import Path

Sync = Callable[[int], None]
"""``os.fsync``, or what stands for it in a test."""

TEMPORARY = ".new-"


def write_whole(path: Path, content: bytes, sync: Sync = os.fsync) -> None:
    """The file with this content, on disk when this returns. Raises ``OSError``; the former file then stands.

    A new file under a temporary name takes the place of the old one (rename is atomic), and the folder that names
    it is flushed too.
    """
    new = path.with_name(TEMPORARY + path.name)
    try:
        with new.open("wb") as stream:
            stream.write(content)
            stream.flush()
            sync(stream.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    flush_folder(path.parent, sync)


def remove(path: Path, sync: Sync = os.fsync) -> None:
    """The file is gone for good when this returns, also where it never was. Needs no space on the disk."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    flush_folder(path.parent, sync)


def flush_folder(folder: Path, sync: Sync = os.fsync) -> None:
    """What was created, renamed and removed in the folder is on disk when this returns."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Remove what a kill between writing and renaming has left."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises ``OSError`` or ``ValueError``."""
    # O_NONBLOCK: a pipe under this name must not stop us for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not path.is_file():
            raise ValueError("is no regular file")
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"is larger than {most} bytes")
    return content
