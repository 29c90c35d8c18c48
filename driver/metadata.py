"""Device metadata (KEP-5304): files in which a container reads what devices its claim has been given.

Paths and content are those of Kubernetes 1.37 (``k8s.io/dynamic-resource-allocation``: ``api/metadata``,
``kubeletplugin/metadata.go``): a file for each request of a claim, which a CDI file of its own mounts into the
containers that name the request. All of it follows from the ledger's entry, so it is the same after any restart.
"""

import json
import os
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from driver.devices.attributes import LONGEST
from driver.devices.device import Value
from driver.devices.slices import attribute
from driver.durable import Sync, holds, make_folder, remove_leftovers, write_whole
from driver.ledger.entry import Entry, Grant
from driver.names import DRIVER, base, is_uid
from models import format_cpuset

GROUP = "metadata.resource.k8s.io"
VERSIONS = ("v1beta1", "v1alpha1")
"""Newest first. A file says the same in each of them; readers take the first that they know."""

MOUNTED = PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
"""Where containers find the files."""

CDI_VERSION, CDI_KIND = "0.5.0", f"{DRIVER}/metadata"
_SPEC = f"{DRIVER}_metadata_"

READABLE = 0o644
"""By whatever user a container runs as."""


class Metadata:
    """The files of all claims: ``folder`` has what is mounted, ``specs`` is where the runtime reads CDI files.
    Methods raise ``OSError``."""

    def __init__(self, folder: Path, specs: Path, sync: Sync = os.fsync) -> None:
        self.folder, self.specs, self._sync = folder, specs, sync

    def open(self) -> None:
        """Remove what a kill has left behind of files that were being written."""
        for folder, names in ((self.folder, "*"), (self.specs, f"{_SPEC}*")):
            remove_leftovers(folder, names)

    def write(self, entry: Entry) -> None:
        """The claim's files; those that are right already are not touched. What is mounted comes first."""
        for path, content in self._files(entry):
            if not holds(path, content):
                make_folder(path.parent, self._sync)
                write_whole(path, content, sync=None, mode=READABLE)

    def stands(self, entry: Entry) -> bool:
        """Whether the claim's files are there and say what they should."""
        return all(holds(path, content) for path, content in self._files(entry))

    def remove(self, uid: str) -> None:
        """The claim's files are gone, whatever requests it had, and whoever wrote its CDI files: dra-driver-cpu
        gives them the same names."""
        for folder, prefix in ((self.specs, f"{_SPEC}{uid}_"), (self.folder, f"{uid}_")):
            for name in _names(folder, prefix):
                (folder / name).unlink(missing_ok=True)

    def keep_only(self, claims: Collection[str]) -> None:
        """Remove the files of all other claims: a driver that did not know of them has released those."""
        found = {name.partition("_")[0] for name in _names(self.folder, "")}
        found |= {name.removeprefix(_SPEC).partition("_")[0] for name in _names(self.specs, _SPEC)}
        for uid in filter(is_uid, found.difference(claims)):
            self.remove(uid)

    def _files(self, entry: Entry) -> Iterator[tuple[Path, bytes]]:
        """Each file of the claim and what it should say."""
        for request, grants in _by_request(entry).items():
            path = self.folder / f"{entry.uid}_{request}.json"
            yield path, _stream(entry, grants)
            spec = {"cdiVersion": CDI_VERSION, "kind": CDI_KIND, "devices": [_mount(entry, request, path)]}
            yield self.specs / f"{_SPEC}{entry.uid}_{request}.json", _json(spec)


def cdi_ids(entry: Entry, grant: Grant) -> list[str]:
    """The CDI devices that mount the metadata of a grant's request; none for a claim without metadata."""
    return [f"{CDI_KIND}={entry.uid}_{base(grant.request)}"] if _is_shown(entry) else []


def _is_shown(entry: Entry) -> bool:
    """Whether containers of the claim are shown its devices: that was decided when it was prepared, for what the
    kubelet has been told once has to be there until the claim is released."""
    return bool(entry.name and entry.shown)


def _by_request(entry: Entry) -> Mapping[str, Sequence[Grant]]:
    found: dict[str, list[Grant]] = {}
    for grant in entry.grants if _is_shown(entry) else ():
        found.setdefault(base(grant.request), []).append(grant)
    return found


def _mount(entry: Entry, request: str, path: Path) -> dict[str, Any]:
    """The CDI device of a request. Where its file appears depends on how the pod's spec names the claim."""
    place = ("resourceclaimtemplates", entry.pod_claim) if entry.pod_claim else ("resourceclaims", entry.name)
    target = MOUNTED.joinpath(*place, request, f"{DRIVER}-metadata.json")
    mount = {"hostPath": str(path), "containerPath": str(target), "options": ["ro", "bind"]}
    return {"name": f"{entry.uid}_{request}", "containerEdits": {"mounts": [mount]}}


def _stream(entry: Entry, grants: Sequence[Grant]) -> bytes:
    """A request's metadata in all versions, one JSON document after the other. They do not change as long as the
    claim is prepared, so it is always the first generation."""
    named = {"name": entry.name, "namespace": entry.namespace, "uid": entry.uid, "generation": 1}
    devices = [_device(entry, grant) for grant in grants]
    body = {
        "metadata": named,
        **({"podClaimName": entry.pod_claim} if entry.pod_claim else {}),
        "requests": [{"name": grants[0].request, "devices": devices}],
    }
    heads = ({"kind": "DeviceMetadata", "apiVersion": f"{GROUP}/{version}"} for version in VERSIONS)
    return b"".join(_json({**head, **body}) for head in heads)


def _device(entry: Entry, grant: Grant) -> dict[str, Any]:
    """What was published of the device, and what the claim has of it."""
    shown = entry.shown.get(grant.device)
    published: Mapping[str, Value] = shown.attributes if shown else {}
    cpus = entry.cpuset & shown.cpus if shown else frozenset[int]()
    given: dict[str, Value] = {f"{DRIVER}/allocatedNumCPUs": grant.cpus}
    if cpus:
        given[f"{DRIVER}/cpuset"] = _list(cpus)
    attributes = {name: attribute(value) for name, value in sorted({**published, **given}.items())}
    return {"driver": DRIVER, "pool": grant.pool, "name": grant.device, "attributes": attributes}


def _list(cpus: frozenset[int]) -> Value:
    """CPUs as a kernel list, if that is short enough for a text; else as a list of texts that are lists."""
    text = format_cpuset(cpus)
    if len(text) <= LONGEST:
        return text
    return tuple(part.replace(" ", ",") for part in textwrap.wrap(text.replace(",", " "), LONGEST))


def _json(document: object) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"


def _names(folder: Path, prefix: str) -> list[str]:
    """Files in the folder whose names begin so; none where there is no folder. dra-driver-cpu's are in folders."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        files = (each.name for each in found if not each.is_dir(follow_symlinks=False))
        return sorted(name for name in files if name.startswith(prefix) and name.endswith(".json"))
    return []
