"""A ``/sys`` tree on disk: bounded, forgiving reads of its small files."""

import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models import BadInputError, parse_cpuset
from models.cpuset import MAX_CPU

_MAX_FILE = 256 * 1024
_WORD = re.compile(r"[0-9a-fA-F]{1,8}")
_BLANKS = " \t\r\n\0"
"""Some kernels and capturing tools leave a NUL after the newline."""


@dataclass(frozen=True)
class Tree:
    """Where the parts of one ``/sys`` lie. Any of them but ``cpu`` may be missing."""

    cpu: Path

    @property
    def node(self) -> Path:
        """``devices/system/node``."""
        return self.cpu.parent / "node"

    @property
    def devices(self) -> Path:
        """``devices``, which holds the PMUs ``cpu_core`` and ``cpu_atom``."""
        return self.cpu.parent.parent

    @property
    def pci(self) -> Path:
        """``bus/pci/devices``."""
        return self.devices.parent / "bus" / "pci" / "devices"


def locate(directory: Path) -> Tree:
    """The tree in a directory: the one that holds ``sys``, ``sys`` itself, or ``sys/devices/system/cpu``."""
    inside = ("sys/devices/system/cpu", "devices/system/cpu", ".")
    for candidate in (directory / part for part in inside):
        if numbered(candidate, "cpu"):
            return Tree(candidate.resolve())
    raise BadInputError(
        "holds no sysfs tree: looked for cpu0, cpu1, … in sys/devices/system/cpu, devices/system/cpu and itself",
        file=str(directory),
    )


def entries(directory: Path) -> list[str]:
    """Names in the directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - half the time of iterdir on 2,000 CPUs
    except OSError:
        return []


def numbered(directory: Path, prefix: str) -> list[int]:
    """Numbers N of the entries ``prefixN``, ascending: ``numbered(Path(".../cpu"), "cpu")`` gives CPU numbers."""
    pattern = re.compile(rf"{prefix}(0|[1-9]\d{{0,5}})", re.ASCII)
    numbers = sorted(int(match[1]) for name in entries(directory) if (match := pattern.fullmatch(name)))
    if numbers and numbers[-1] > MAX_CPU:
        raise BadInputError(f"{prefix}{numbers[-1]} is above the highest number allowed", file=str(directory))
    return numbers


def read(path: Path) -> str | None:
    """The file's text without blanks and NULs around it; ``None`` where there is none that can be read.

    Opened without blocking and only if it is a regular file, since a captured tree may hold anything.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.read(handle, _MAX_FILE).decode("latin-1").strip(_BLANKS)
    except OSError:
        return None
    finally:
        os.close(handle)


def read_int(path: Path) -> int | None:
    """The whole number in the file, negative ones included; ``None`` where there is none."""
    text = read(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def read_cpus(directory: Path, *files: str) -> frozenset[int] | None:
    """CPUs named by the first of the files that is there and not blank; ``None`` where none is.

    The kernel writes each set twice: as a list (``…list``) and as a mask. Raises ``BadInputError`` with the path.
    """
    for file in files:
        text = read(directory / file)
        if text:
            parse = parse_list if file.endswith("list") else parse_mask
            return parse(text, directory / file)
    return None


def parse_list(text: str, path: Path) -> frozenset[int]:
    """CPUs of a kernel list; ``BadInputError`` naming the file it was read from."""
    try:
        return _list_cpus(text)
    except ValueError as error:
        raise BadInputError(str(error), file=str(path)) from None


def parse_mask(text: str, path: Path) -> frozenset[int]:
    """CPUs of a kernel mask: words of 32 bits, most significant first; ``00000001,00000000`` is CPU 32."""
    cpus = _mask_cpus(text)
    if cpus is None:
        raise BadInputError(f"{text[:40]!r} is not a CPU mask such as 0000000f", file=str(path))
    return cpus


_list_cpus = lru_cache(maxsize=1024)(parse_cpuset)
"""Siblings carry equal texts: on a large machine most are parsed once."""


@lru_cache(maxsize=1024)
def _mask_cpus(text: str) -> frozenset[int] | None:
    words = text.split(",")
    if len(words) > (MAX_CPU + 1) // 32 or not all(_WORD.fullmatch(word) for word in words):
        return None
    bits = int("".join(word.zfill(8) for word in words), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)
