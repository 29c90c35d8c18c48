"""What the kernel says: on which CPUs a container's processes may run. Independent of how the driver looks."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from models import format_cpuset, parse_cpuset

MOUNT = Path("/sys/fs/cgroup")
V1, V2 = ("cpuset.cpus", "tasks"), ("cpuset.cpus.effective", "cgroup.threads")
"""The mask, and the numbers of all threads."""

STATUS = "Cpus_allowed_list:"


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
    cpus = parse_cpuset((folder(cgroup) / (V1 if _is_v1() else V2)[0]).read_text())
    for thread in threads(cgroup):
        for allowed in _allowed(thread):
            if allowed != cpus:
                said = f"thread {thread} may run on {format_cpuset(allowed)}"
                raise MixedError(f"{said}, its cgroup {cgroup} on {format_cpuset(cpus)}")
    return cpus


def folder(cgroup: str) -> Path:
    """Where the kernel shows it."""
    return _root() / cgroup


def threads(cgroup: str) -> list[int]:
    """Numbers of all its threads."""
    return [int(each) for each in (folder(cgroup) / (V1 if _is_v1() else V2)[1]).read_text().split()]


def read_status(text: str) -> frozenset[int]:
    """CPUs that a ``/proc/<pid>/status`` allows."""
    (line,) = [line for line in text.splitlines() if line.startswith(STATUS)]
    return parse_cpuset(line.removeprefix(STATUS).strip())


def remove_cgroups(name: str, patience: float = 10.0) -> None:
    """Remove the cgroup of every controller, with those below. Their processes must have been ended."""
    tops = [MOUNT / controller / name for controller in _controllers()] if _is_v1() else [MOUNT / name]
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


def _allowed(thread: int) -> Iterator[frozenset[int]]:
    with suppress(FileNotFoundError, ProcessLookupError):
        yield read_status(Path(f"/proc/{thread}/status").read_text())


def _is_v1() -> bool:
    return (MOUNT / "cpuset").is_dir()


def _root() -> Path:
    return MOUNT / "cpuset" if _is_v1() else MOUNT


def _controllers() -> list[str]:
    return [path.name for path in MOUNT.iterdir() if path.is_dir() and not path.is_symlink()]
