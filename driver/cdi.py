"""CDI spec files, by which the runtime gives a container the variable that names its claim.

The format is that of the Container Device Interface, version 0.5.0 and later: one file per claim.
"""

import json
import logging
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from driver.durable import Sync, holds, make_folder, read_bounded, remove, remove_leftovers, write_whole
from driver.ledger.entry import Entry
from driver.metadata import Metadata
from driver.names import CDI_KIND, cdi_file, cdi_name, is_uid, variable
from models import format_cpuset, parse_cpuset

log = logging.getLogger(__name__)

VERSION = "0.5.0"
"""The oldest that has all we use, so that the oldest runtimes read it."""

LARGEST = 1 << 20

_FILE = re.compile(re.escape(cdi_file("UID")).replace("UID", "(.+)"))


class CDI:
    """The claims' files in the folder that the runtime reads, with the device metadata that others of them mount
    (in ``metadata``). Its methods raise ``OSError``."""

    def __init__(self, folder: Path, sync: Sync = os.fsync, metadata: Path | None = None) -> None:
        self.folder, self._sync = folder, sync
        self._metadata = Metadata(metadata or folder / "metadata", folder, sync)

    def open(self) -> None:
        """Make the folder, and remove what a kill has left in it."""
        make_folder(self.folder, self._sync)
        remove_leftovers(self.folder, cdi_file("*"))
        self._metadata.open()

    def write(self, entry: Entry) -> None:
        """The files of a claim; those that are right already are not touched. They are not flushed: after a power
        cut the next start writes them again from the ledger, before any claim is prepared."""
        path, content = self._path(entry.uid), _spec(entry)
        self._metadata.write(entry)
        if not holds(path, content):
            make_folder(self.folder, self._sync)
            write_whole(path, content, sync=None)

    def stands(self, entry: Entry) -> bool:
        """Whether the claim's files are there and say what they should."""
        return holds(self._path(entry.uid), _spec(entry)) and self._metadata.stands(entry)

    def remove(self, uid: str) -> None:
        """The claim's files are gone, also where they never were; its own for good, for a CDI file that came back
        after a power cut, without its ledger entry, would be taken for another driver's."""
        self._metadata.remove(uid)
        remove(self._path(uid), self._sync)

    def keep_only(self, claims: Collection[str]) -> None:
        """Remove the device metadata of claims that are neither among these nor have a file of their own."""
        self._metadata.keep_only({*claims, *self.uids()})

    def uids(self) -> Iterator[str]:
        """The claims that have a file, the oldest first. The other files are other drivers', who come and go."""
        named = ((path, _FILE.fullmatch(path.name)) for path in self.folder.iterdir())
        ours = {path: match[1] for path, match in named if match and is_uid(match[1])}
        for path in sorted(ours, key=lambda path: (path.lstat().st_mtime_ns, path.name)):
            yield ours[path]

    def adopt(self, uid: str) -> Entry | None:
        """The claim of a file that another driver has written; ``None`` if it does not name any CPUs."""
        try:
            cpus = parse_cpuset(_cpuset(json.loads(read_bounded(self._path(uid), LARGEST)), uid))
            return Entry(uid=uid, cpuset=cpus, adopted=True)
        except (OSError, ValueError, RecursionError) as error:
            log.error("the CDI file of claim %s cannot be read and is left alone: %s", uid, error)
            return None

    def _path(self, uid: str) -> Path:
        if not is_uid(uid):
            raise ValueError(f"{uid[:80]!r} is no uid")
        return self.folder / cdi_file(uid)


def _spec(entry: Entry) -> bytes:
    edits = {"env": [f"{variable(entry.uid)}={format_cpuset(entry.cpuset)}"]}
    device = {"name": cdi_name(entry.uid), "containerEdits": edits}
    return json.dumps({"cdiVersion": VERSION, "kind": CDI_KIND, "devices": [device]}, indent=1).encode() + b"\n"


def _cpuset(spec: object, uid: str) -> str:
    """What the variable of the claim is set to, in whichever of the spec's edits it stands."""
    found = {value for text in _texts(spec) if (value := text.removeprefix(f"{variable(uid)}=")) != text}
    if len(found) != 1 or "" in found:
        raise ValueError(f"it sets {variable(uid)} to {len(found - {''})} values instead of one")
    return found.pop()


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
