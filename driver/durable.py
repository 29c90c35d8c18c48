"""Files that survive a kill or a power cut: whole or not there, never torn."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

Sync = Callable[[int], None]
"""``os.fsync``, or what stands for it in a test."""

NEW = ".new"
"""Ends the name of a file that is being written. Runtimes read whatever ends in ``.json`` from the CDI folder."""


def write_whole(path: Path, content: bytes, sync: Sync | None = os.fsync, mode: int | None = None) -> None:
    """The file with this content, on disk when this returns. Raises ``OSError``, after which the former file
    stands, or perhaps the new one if it was the folder that could not be flushed. ``mode``: its permissions, by
    default what the process is set to give. Without ``sync`` it is whole for whoever reads it, and after a kill,
    but not after a power cut: for files that are made anew from others.

    A new file under a temporary name takes the place of the old one (rename is atomic), and the folder that names
    it is flushed too. What has the temporary name goes first: a link would lead the bytes elsewhere, and a pipe
    would hold us up for ever.
    """
    new = temporary(path)
    try:
        with _opened_anew(new) as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            if sync is not None:
                sync(stream.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    if sync is not None:
        flush_folder(path.parent, sync)


def _opened_anew(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        path.unlink()
        return path.open("xb")


def remove(path: Path, sync: Sync = os.fsync) -> None:
    """The file is gone for good when this returns, also where it never was. Needs no space on the disk."""
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        flush_folder(path.parent, sync)


def move(path: Path, target: Path, sync: Sync = os.fsync) -> None:
    """The file under another name, for good when this returns."""
    path.replace(target)
    for folder in (target.parent, path.parent):
        flush_folder(folder, sync)


def make_folder(folder: Path, sync: Sync = os.fsync) -> None:
    """The folder is there for good when this returns, with those above it."""
    if not folder.is_dir():
        make_folder(folder.parent, sync)
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent, sync)


def flush_folder(folder: Path, sync: Sync = os.fsync) -> None:
    """What was created, renamed and removed in the folder is on disk when this returns."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def temporary(path: Path) -> Path:
    """Where a file is before it takes its place."""
    return path.with_name(f".{path.name}{NEW}")


def is_temporary(path: Path) -> bool:
    """Whether it is such a file."""
    return path.name.startswith(".") and path.name.endswith(NEW)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what a kill between writing and renaming has left of files of that name (a pattern)."""
    for leftover in folder.glob(f".{name}{NEW}"):
        leftover.unlink(missing_ok=True)


def holds(path: Path, content: bytes) -> bool:
    """Whether there is a regular file with just this content."""
    try:
        return read_start(path, len(content) + 1) == content
    except (OSError, ValueError):
        return False


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises ``OSError`` or ``ValueError``."""
    content = read_start(path, most + 1)
    if len(content) > most:
        raise ValueError(f"is larger than {most} bytes")
    return content


def read_start(path: Path, most: int) -> bytes:
    """The first bytes of a regular file. Raises ``OSError`` or ``ValueError``."""
    # O_NONBLOCK: a pipe under this name must not stop us for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(handle)
