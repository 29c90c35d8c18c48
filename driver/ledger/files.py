"""The ledger on disk: one JSON file per claim, named after its uid; what cannot be read is set aside, not lost."""

import json
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from driver.durable import Sync, read_bounded, remove, remove_leftovers, write_whole
from driver.ledger.entry import Entry
from driver.names import is_uid
from models import BadInputError, format_cpuset, parse_cpuset

log = logging.getLogger(__name__)

SUFFIX = ".json"
QUARANTINE = "quarantine"
LARGEST = 1 << 20
"""Bytes of a claim's file; the largest that the API server can make us write is far smaller."""

_CPUS = re.compile(rb'"cpuset"\s*:\s*"([0-9,-]{0,100000})"')


@dataclass(frozen=True)
class Read:
    """What the folder holds: entries by uid, and CPUs that files in quarantine name."""

    entries: dict[str, Entry] = field(default_factory=dict)
    quarantined: frozenset[int] = frozenset()


class Files:
    """The folder of the ledger. Its methods raise ``OSError`` and leave the former file as it was."""

    def __init__(self, folder: Path, sync: Sync = os.fsync) -> None:
        self.folder, self._sync = folder, sync

    @property
    def quarantine(self) -> Path:
        """Where files lie that could not be read; whoever has dealt with one removes it."""
        return self.folder / QUARANTINE

    def write(self, entry: Entry) -> None:
        """Keep the entry."""
        write_whole(self._path(entry.uid), entry.model_dump_json(indent=1).encode() + b"\n", self._sync)

    def remove(self, uid: str) -> None:
        """Forget the claim."""
        remove(self._path(uid), self._sync)

    def read(self) -> Read:
        """All entries. A file that is torn, foreign, too large or wrongly named is moved to quarantine."""
        self.quarantine.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        entries: dict[str, Entry] = {}
        for path in sorted(self.folder.iterdir()):
            if path == self.quarantine:
                continue
            try:
                entry = read_entry(path)
                entries[entry.uid] = entry
            except (OSError, ValueError) as error:
                self._set_aside(path, error)
        return Read(entries, _cpus_of(self.quarantine))

    def _path(self, uid: str) -> Path:
        if not is_uid(uid):
            raise ValueError(f"{uid[:80]!r} is no uid")
        return self.folder / f"{uid}{SUFFIX}"

    def _set_aside(self, path: Path, error: Exception) -> None:
        target = self.quarantine / path.name
        path.replace(target)
        log.error(
            "a file of the ledger cannot be used and was moved to %s: %s. The CPUs that it names stay held; "
            "remove it when no pod uses them any more, and restart the driver",
            target,
            error,
        )


def read_entry(path: Path) -> Entry:
    """The entry in a file. Raises ``OSError`` or ``ValueError`` with what is wrong."""
    uid = path.name.removesuffix(SUFFIX)
    if not path.name.endswith(SUFFIX) or not is_uid(uid):
        raise ValueError("its name is not that of a claim's file")
    try:
        entry = Entry.model_validate(json.loads(read_bounded(path, LARGEST)))
    except ValidationError as error:
        raise ValueError(str(BadInputError.from_pydantic(error))) from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if entry.uid != uid:
        raise ValueError(f"it is the file of another claim, {entry.uid[:80]!r}")
    return entry


def _cpus_of(quarantine: Path) -> frozenset[int]:
    """CPUs that the files in quarantine name in whatever is left of them."""
    found: set[int] = set()
    for path in quarantine.iterdir():
        try:
            for text in _CPUS.findall(read_bounded(path, LARGEST)):
                found |= parse_cpuset(text.decode())
        except (OSError, ValueError):
            continue
    if found:
        log.error("CPUs %s stay held: files in %s name them", format_cpuset(found), quarantine)
    return frozenset(found)
