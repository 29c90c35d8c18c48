"""Which CPUs the kernel lets a container run on, from its cgroup's files.

The forms of a cgroup's path are those of the OCI runtime specification's ``cgroupsPath`` as runc reads it; the
files are those of the kernel's admin guide, ``cgroup-v1/cpusets`` and ``cgroup-v2``.
"""

import os
from functools import lru_cache
from pathlib import Path, PurePosixPath

from models import parse_cpuset, to_mask

FILES_V1: tuple[str, ...] = ("cpuset.cpus", "cpuset.effective_cpus")
"""What was set, which holds there; what holds where nothing was set."""

FILES_V2: tuple[str, ...] = ("cpuset.cpus.effective",)
"""What holds. ``cpuset.cpus`` is a wish: where the parent has none of these CPUs, its own hold; no error."""

OF_V2, PASSED_ON = "cgroup.controllers", "cgroup.subtree_control"
"""The root of version 2 has the first, and may have a cgroup of any name; the second names what children have."""

LONGEST_PATH, LONGEST_FILE = 4096, 1 << 20
ONCE = 1 << 16


class Kernel:
    """Reads masks below a cgroup mount, ``/sys/fs/cgroup`` as a rule (``driver.nri.glance.ReadMask``)."""

    def __init__(self, root: Path) -> None:
        v1 = root / "cpuset"
        self._is_v1 = v1.is_dir() and not (root / OF_V2).exists()
        self._top, self._files = (v1, FILES_V1) if self._is_v1 else (root, FILES_V2)

    def __call__(self, cgroup: str) -> int | None:
        """CPUs of a container's cgroup, ``None`` where they cannot be read: it is gone, or was never there."""
        folder = folder_of(cgroup)
        return None if folder is None else self._mask(f"{self._top}/{folder}")

    def _mask(self, folder: str) -> int | None:
        for file in self._files:
            if cpus := _mask_of(_read(f"{folder}/{file}")):
                return cpus
        return self._mask(str(Path(folder).parent)) if self._inherits(Path(folder)) else None

    def _inherits(self, folder: Path) -> bool:
        """Whether it has no file because its parent does not pass the controller on: then the parent's mask holds.

        A cgroup that is being removed may lose its files before it is gone.
        """
        if self._is_v1 or folder == self._top or not folder.is_dir():
            return False
        passed_on = _read(f"{folder.parent}/{PASSED_ON}")
        return passed_on is not None and b"cpuset" not in passed_on.split()


def _read(file: str) -> bytes | None:
    """What stands in a file, ``None`` if it cannot be read. Thousands are read in a row."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = [os.read(opened, ONCE)]
        while parts[-1] and sum(map(len, parts)) < LONGEST_FILE:
            parts.append(os.read(opened, ONCE))
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(opened)


@lru_cache(maxsize=1024)
def _mask_of(text: bytes | None) -> int:
    """CPUs of a list, 0 where it is none. Most containers have the same."""
    try:
        return to_mask(parse_cpuset(text.decode("ascii"))) if text else 0
    except ValueError:
        return 0


@lru_cache(maxsize=4096)
def folder_of(cgroup: str) -> PurePosixPath | None:
    """The folder that a ``cgroupsPath`` means, below the mount; ``None`` for none or a hostile one.

    ``/kubepods/pod1/abc`` is a path; ``kubepods-pod1.slice:cri:abc`` a slice, prefix and name of systemd's.
    """
    if len(cgroup) > LONGEST_PATH or "\0" in cgroup:
        return None
    parts = cgroup.split(":")
    in_slice = len(parts) == 3 and not cgroup.startswith("/")
    path = _of_systemd(*parts) if in_slice else PurePosixPath(cgroup.lstrip("/"))
    return path if path.parts and ".." not in path.parts else None


def _of_systemd(slice_name: str, prefix: str, name: str) -> PurePosixPath:
    """``a-b.slice`` lies within ``a.slice`` (systemd.slice(5)); a unit of its own has no prefix."""
    words = slice_name.removesuffix(".slice").split("-") if slice_name not in ("", "-.slice") else []
    slices = ["-".join(words[: end + 1]) + ".slice" for end in range(len(words))]
    unit = name if name.endswith(".slice") else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    return PurePosixPath(*(each.replace("/", "") for each in (*slices, unit)))
