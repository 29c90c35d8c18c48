"""``sysfsOverlay``: a ``/sys`` in which some files read differently, for machines whose own says too little.

The overlay is that of dra-driver-cpu: a YAML mapping of absolute paths below ``/sys`` to the text to be read
there. All other files are the base's. Here it becomes a folder of links, which every reader of ``/sys`` takes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from driver.scratch import scratch
from models import BadInputError, format_cpuset
from topologies.readers.sysfs_tree import entries, read_int
from topologies.readers.text import read_file
from topologies.readers.yaml_text import parse_yaml

ROOT = "/sys"
CPUS = PurePosixPath("devices/system/cpu")

PREFIX = "cpusat-sys-"
"""Of the temporary folders in which trees are built."""

_NODE = re.compile(r"node\d+", re.ASCII)
_CORE_ID = re.compile(r"devices/system/cpu/(cpu\d+)/topology/core_id", re.ASCII)
_SAME_CORE = ("physical_package_id", "die_id", "cluster_id", "core_id")
_SIBLINGS = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")


def read_overlay(file: Path) -> dict[PurePosixPath, str]:
    """The overlay's texts by their paths below ``/sys``. Raises ``BadInputError`` with the file and the path."""
    try:
        document = parse_yaml(read_file(file))
        if not isinstance(document, dict):
            raise BadInputError("is not a mapping of paths below /sys to texts")
        found = {_below_root(path): _text(path, value) for path, value in document.items()}
        if folders := {parent for path in found for parent in path.parents} & found.keys():
            raise BadInputError("is both a file and a folder", place=f"{ROOT}/{min(folders)}")
        return found
    except BadInputError as error:
        raise error.within(str(file)) from None


def _below_root(path: object) -> PurePosixPath:
    if not isinstance(path, str) or not path.startswith(f"{ROOT}/"):
        raise BadInputError(f"is not a path below {ROOT}", place=str(path))
    parts = path.removeprefix(f"{ROOT}/").split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadInputError("is not a plain path: leave out '.', '..' and repeated slashes", place=path)
    return PurePosixPath(*parts)


def _text(path: object, value: object) -> str:
    if not isinstance(value, str):
        raise BadInputError("must be a text, in quotes", place=str(path))
    return value


@contextmanager
def overlaid(file: str, base: Path) -> Iterator[Path]:
    """The ``/sys`` tree to read while inside: the base under the overlay in the file, if one is named.

    Raises ``BadInputError`` as ``read_overlay`` and ``lay`` do.
    """
    if not file:
        yield base
        return
    overlay = read_overlay(Path(file))
    with scratch(PREFIX) as into:
        yield lay(overlay, base, into)


def lay(overlay: dict[PurePosixPath, str], base: Path, into: Path) -> Path:
    """Build the tree in an empty folder: links to what the base has, files where the overlay has something.

    Where it moves a CPU to another core by ``core_id``, the lists of siblings follow, which our reader goes by.
    Raises ``BadInputError`` for a path that cannot be there.
    """
    _unfold(CPUS, base, into)
    for path, text in overlay.items():
        try:
            _unfold(path.parent, base, into)
            _write(into / path, text)
        except OSError as error:
            raise BadInputError(f"cannot be in this tree: {error.strerror}", place=f"{ROOT}/{path}") from None
    _move_siblings(overlay, into)
    return into


def _unfold(folder: PurePosixPath, base: Path, into: Path) -> None:
    """Make the folder, and those above it, real, with links to all that the base has in them."""
    for each in (*reversed(folder.parents), folder):
        target = into / each
        if target.is_symlink() and target.is_dir():
            target.unlink()
        elif target.is_dir() and any(target.iterdir()):
            continue
        target.mkdir(exist_ok=True)
        for name in entries(base / each):
            (target / name).symlink_to((base / each / name).absolute())


def _write(path: Path, text: str) -> None:
    if path.is_symlink():
        path.unlink()
    if _NODE.fullmatch(path.name):
        _leave_nodes(path.parent)
    path.write_text(text)


def _leave_nodes(cpu: Path) -> None:
    """A CPU lies in one NUMA node: naming one replaces the base's."""
    for name in entries(cpu):
        if _NODE.fullmatch(name):
            (cpu / name).unlink()


def _move_siblings(overlay: Iterable[PurePosixPath], into: Path) -> None:
    named = set(overlay)
    moved = {match[1] for path in named if (match := _CORE_ID.fullmatch(str(path)))}
    cores = defaultdict(set)
    for cpu in moved:
        topology = into / CPUS / cpu / "topology"
        cores[tuple(read_int(topology / name) for name in _SAME_CORE)].add(int(cpu.removeprefix("cpu")))
    for siblings in cores.values():
        for cpu in siblings:
            folder = CPUS / f"cpu{cpu}" / "topology"
            if not named & {folder / name for name in _SIBLINGS}:
                _write(into / folder / _SIBLINGS[0], format_cpuset(siblings))
