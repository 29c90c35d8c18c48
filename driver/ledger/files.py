"""The ledger on disk: one JSON file per claim, named after its uid; what cannot be read is set aside, not lost."""

import json
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from pydantic import ValidationError

from driver.durable import (
    Sync,
    holds,
    is_temporary,
    make_folder,
    move,
    read_bounded,
    read_start,
    remove,
    remove_leftovers,
    write_whole,
)
from driver.ledger.entry import Entry
from driver.names import is_uid
from models import BadInputError, format_cpuset, parse_cpuset

log = logging.getLogger(__name__)

SUFFIX = ".json"
QUARANTINE = "quarantine"
LARGEST = 1 << 20
"""Bytes of a claim's file; the largest that the API server can make us write is far smaller."""

_CPUS = re.compile(rb'"cpuset"\s*:\s*"([0-9,-]{0,500000})("?)')


@dataclass(frozen=True)
class Aside:
    """A file that was found among the ledger's and is none: why, and the CPUs that it names all the same.

    ``whole``: it names all that can ever have been in it.
    """

    file: Path
    reason: str
    cpus: frozenset[int]
    whole: bool

    @property
    def uid(self) -> str:
        """The claim that it is named after, or nothing."""
        uid, suffix, _ = self.file.name.partition(SUFFIX)
        return uid if suffix and is_uid(uid) else ""

    def __str__(self) -> str:
        held = f"its CPUs {format_cpuset(self.cpus)} stay held" if self.cpus else "it names no CPUs"
        return f"{self.file}: {self.reason}; {held}; remove it when no pod needs it, and restart the driver"


@dataclass(frozen=True)
class Read:
    """What the folder holds: entries by uid, and files that were set aside, now or before."""

    entries: dict[str, Entry] = field(default_factory=dict)
    aside: tuple[Aside, ...] = ()


class Files:
    """The folder of the ledger. ``write`` and ``remove`` raise ``OSError``."""

    def __init__(self, folder: Path, sync: Sync = os.fsync) -> None:
        self.folder, self._sync = folder, sync

    @property
    def quarantine(self) -> Path:
        """Where files lie that could not be read; whoever has dealt with one removes it."""
        return self.folder / QUARANTINE

    def write(self, entry: Entry) -> None:
        """Keep the entry."""
        write_whole(self._path(entry.uid), _content(entry), self._sync)

    def stands(self, entry: Entry) -> bool:
        """Whether the entry's file is there and says what it should."""
        return holds(self._path(entry.uid), _content(entry))

    def remove(self, uid: str) -> None:
        """Forget the claim."""
        remove(self._path(uid), self._sync)

    def read(self) -> Read:
        """All entries. A file that is torn, foreign, too large, wrongly named or of CPUs that an older file names
        too is moved to quarantine. Raises ``BadInputError`` if the folder cannot be made or read.
        """
        self._make_ready()
        entries: dict[str, Entry] = {}
        others = quarantined(self.folder)
        held: frozenset[int] = frozenset()
        for path in self._files():
            try:
                entry = read_entry(path)
                if clash := entry.cpuset & held:
                    raise ValueError(f"an older file gives CPUs {format_cpuset(clash)} to another claim")
            except (OSError, ValueError) as error:
                others.append(self._set_aside(path, str(error)))
            else:
                entries[entry.uid] = entry
                held |= entry.cpuset
        for each in others:
            log.error("a file of the ledger cannot be used: %s", each)
        return Read(entries, tuple(others))

    def _path(self, uid: str) -> Path:
        if not is_uid(uid):
            raise ValueError(f"{uid[:80]!r} is no uid")
        return self.folder / f"{uid}{SUFFIX}"

    def _make_ready(self) -> None:
        """As far as a disk lets us that may be full or read-only."""
        try:
            make_folder(self.quarantine, self._sync)
            remove_leftovers(self.folder)
        except OSError as error:
            log.error("the ledger's folder cannot be written to: %s", error)

    def _files(self) -> list[Path]:
        """All that is no folder and not just being written, oldest first."""
        try:
            files = (path for path in self.folder.iterdir() if path.is_symlink() or not path.is_dir())
            whole = (path for path in files if not is_temporary(path))
            return sorted(whole, key=lambda path: (path.lstat().st_mtime_ns, path.name))
        except OSError as error:
            reason = f"the ledger cannot be read: {error.strerror}"
            raise BadInputError(reason, file=str(self.folder)) from None

    def _set_aside(self, path: Path, reason: str) -> Aside:
        names = chain([path.name], (f"{path.name}.{n}" for n in count(1)))
        target = next(place for name in names if not (place := self.quarantine / name).exists())
        try:
            move(path, target, self._sync)
        except OSError as error:
            log.error("%s cannot be moved to %s: %s", path, target, error.strerror)
            target = target if target.exists() else path
        return aside(target, reason)


def _content(entry: Entry) -> bytes:
    return entry.model_dump_json(indent=1).encode() + b"\n"


def read_entry(path: Path) -> Entry:
    """The entry in a file. Raises ``OSError`` or ``ValueError`` with what is wrong."""
    uid = path.name.removesuffix(SUFFIX)
    if not path.name.endswith(SUFFIX) or not is_uid(uid):
        raise ValueError("its name is not that of a claim's file")
    content = read_bounded(path, LARGEST)
    try:
        entry = Entry.model_validate(json.loads(content))
    except ValidationError as error:
        raise ValueError(f"is of another kind or version: {BadInputError.from_pydantic(error)}") from None
    except ValueError as error:
        raise ValueError(f"is torn: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if entry.uid != uid:
        raise ValueError(f"it is the file of another claim, {entry.uid[:80]!r}")
    if not entry.cpuset:
        raise ValueError("it gives the claim no CPUs")
    return entry


def aside(path: Path, reason: str) -> Aside:
    """A file that is no entry, with what it still says."""
    return Aside(path, reason, *_legible(path))


def quarantined(folder: Path) -> list[Aside]:
    """Files in the quarantine of a ledger's folder, with which nobody has dealt yet."""
    with suppress(OSError):
        return [aside(path, "was put into quarantine") for path in sorted((folder / QUARANTINE).iterdir())]
    return []


def _legible(path: Path) -> tuple[frozenset[int], bool]:
    """CPUs that a file names in whatever is left of it, and whether an entry of which this is left had no others:
    its own CPUs come before those of its parts."""
    try:
        found = _CPUS.findall(read_start(path, LARGEST))
    except (OSError, ValueError):
        return frozenset(), False
    parts = {part for cpus, _ in found for part in cpus.decode().split(",")}
    return frozenset[int]().union(*map(_part, parts)), bool(found and found[0][1])


def _part(text: str) -> frozenset[int]:
    """CPUs of one range of a list, which may have lost its end."""
    with suppress(ValueError):
        return parse_cpuset(text.removesuffix("-"))
    return frozenset()
