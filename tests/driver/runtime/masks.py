"""What the kernel says: on which CPUs a container's processes may run, on which NUMA nodes their memory may lie.

Independent of how the driver looks.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from models import format_cpuset, parse_cpuset

MOUNT = Path("/sys/fs/cgroup")
V1, V2 = "tasks", "cgroup.threads"
"""The numbers of all threads."""


class Kind(NamedTuple):
    """A list that the kernel keeps: its file in a cgroup of either version, and its line in a thread's status."""

    v1: str
    v2: str
    status: str


CPUS = Kind("cpuset.cpus", "cpuset.cpus.effective", "Cpus_allowed_list:")
MEMS = Kind("cpuset.mems", "cpuset.mems.effective", "Mems_allowed_list:")


class MixedError(AssertionError):
    """The processes of one container may run on different CPUs, or on others than their cgroup says."""


def why_no_cpusets() -> str:
    """Why no cgroup of ours can have CPUs of its own here; nothing where it can."""
    try:
        own = _root() / f"cpusat-probe-{time.monotonic_ns()}"
        own.mkdir()
        try:
            (own / "cpuset.cpus").read_text()
        finally:
            own.rmdir()
    except OSError as error:
        return f"no cgroup with the cpuset controller can be made here: {error}"
    return ""


def mask(cgroup: str) -> frozenset[int]:
    """CPUs of a cgroup (a path below the controller's), which are those of each of its threads.

    Raises ``MixedError``, and ``OSError`` if there is no such cgroup.
    """
    return _agreed(cgroup, CPUS, "run on")


def memory_nodes(cgroup: str) -> frozenset[int]:
    """NUMA nodes of a cgroup, on which the memory of each of its threads may lie. Raises as ``mask`` does."""
    return _agreed(cgroup, MEMS, "have memory of")


def _agreed(cgroup: str, kind: Kind, what: str) -> frozenset[int]:
    file = kind.v1 if is_v1() else kind.v2
    numbers = parse_cpuset((folder(cgroup) / file).read_text())
    for thread in threads(cgroup):
        for allowed in _allowed(thread, kind):
            if allowed != numbers:
                said = f"thread {thread} may {what} {format_cpuset(allowed)}"
                raise MixedError(f"{said}, its cgroup {cgroup} {format_cpuset(numbers)}")
    return numbers


def folder(cgroup: str) -> Path:
    """Where the kernel shows it."""
    return _root() / cgroup


def threads(cgroup: str) -> list[int]:
    """Numbers of all its threads."""
    return [int(each) for each in (folder(cgroup) / (V1 if is_v1() else V2)).read_text().split()]


def read_status(text: str, kind: Kind = CPUS) -> frozenset[int]:
    """CPUs that a ``/proc/<pid>/status`` allows, or NUMA nodes."""
    (line,) = [line for line in text.splitlines() if line.startswith(kind.status)]
    return parse_cpuset(line.removeprefix(kind.status).strip())


def remove_cgroups(name: str, patience: float = 10.0) -> None:
    """Remove the cgroup of every controller, with those below. Their processes must have been ended."""
    tops = [MOUNT / controller / name for controller in _controllers()] if is_v1() else [MOUNT / name]
    until = time.monotonic() + patience
    for top in tops:
        while top.exists():
            for folder in sorted((each for each in top.rglob("*") if each.is_dir()), reverse=True):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                top.rmdir()
            if top.exists() and time.monotonic() > until:
                raise OSError(f"{top} cannot be removed")


def _allowed(thread: int, kind: Kind) -> Iterator[frozenset[int]]:
    with suppress(FileNotFoundError, ProcessLookupError):
        yield read_status(Path(f"/proc/{thread}/status").read_text(), kind)


def is_v1() -> bool:
    """Whether the cpuset controller is one of the first version's."""
    return (MOUNT / "cpuset").is_dir()


def _root() -> Path:
    return MOUNT / "cpuset" if is_v1() else MOUNT


def _controllers() -> list[str]:
    return [path.name for path in MOUNT.iterdir() if path.is_dir() and not path.is_symlink()]
