"""Sets of CPUs, and the texts that Linux uses for them.

The kernel's list form (``0-3,8,10-11``) is described in the kernel's admin guide under "CPU lists"; the mask
form is what ``taskset`` takes.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

MAX_CPU = 65_535
"""Highest CPU number we read: eight times the largest NR_CPUS of any kernel, small enough to expand safely."""

_MAX_TEXT = 1_000_000
_MOST_NAMED = 4 * MAX_CPU
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?(?::(\d{1,6})(?:/(\d{1,6}))?)?", re.ASCII)


def parse_cpuset(text: str) -> frozenset[int]:
    """CPUs named by a kernel list: ``"0-3,8"`` gives ``{0, 1, 2, 3, 8}``, an empty text the empty set.

    Strides are read as the kernel writes them (``0-31:2/8``: the first two of each group of eight) and as
    ``lscpu`` does (``0-62:2``: every second). Raises ``ValueError`` with the offending part.
    """
    if len(text) > _MAX_TEXT:
        raise ValueError(f"CPU list of {len(text)} characters is too long")
    parts = [part.strip() for part in text.strip(" \t\r\n\0").split(",")]
    cpus: set[int] = set()
    named = 0
    for part in parts if parts != [""] else []:
        found = _parse_range(part)
        named += len(found)
        if named > _MOST_NAMED:
            raise ValueError("CPU list repeats the same CPUs too often")
        cpus.update(found)
    return frozenset(cpus)


def _parse_range(part: str) -> Sequence[int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part[:40]!r} is not a CPU number or a range such as 0-3")
    first, last, step, group = (None if found is None else int(found) for found in match.groups())
    assert first is not None
    if last is None and step is not None:
        raise ValueError(f"{part[:40]!r}: a stride needs a range, as in 0-31:2")
    last = first if last is None else last
    if last < first:
        raise ValueError(f"range {part[:40]!r} runs backwards")
    if last > MAX_CPU:
        raise ValueError(f"CPU {last} is above the highest number allowed, {MAX_CPU}")
    if step is None:
        return range(first, last + 1)
    if step == 0 or group == 0:
        raise ValueError(f"stride in {part[:40]!r} must be at least 1")
    if group is None:
        return range(first, last + 1, step)
    return [cpu for cpu in range(first, last + 1) if (cpu - first) % group < step]


def format_cpuset(cpus: Iterable[int]) -> str:
    """Kernel list of the CPUs, shortest form: ``{0, 1, 2, 8}`` gives ``"0-2,8"``."""
    ordered = sorted(cpus)
    if not ordered:
        return ""
    breaks = [(a, b) for a, b in pairwise(ordered) if b != a + 1]
    firsts = [ordered[0], *(b for _, b in breaks)]
    lasts = [*(a for a, _ in breaks), ordered[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def to_mask(cpus: Iterable[int]) -> int:
    """The CPUs as a bit mask: bit n stands for CPU n."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def from_mask(mask: int) -> frozenset[int]:
    """The CPUs whose bits are set."""
    return frozenset([cpu for cpu, bit in enumerate(f"{mask:b}"[::-1]) if bit == "1"])


def union(masks: Iterable[int]) -> int:
    """All CPUs of some masks."""
    whole = 0
    for mask in masks:
        whole |= mask
    return whole


def format_mask(cpus: Iterable[int]) -> str:
    """Hexadecimal mask of the CPUs, as ``taskset`` reads it: ``{0, 4}`` gives ``"0x11"``."""
    return hex(to_mask(cpus))


def read_cpuset(value: Any) -> frozenset[int]:  # noqa: ANN401 - callers and pydantic hand in anything
    """CPUs given as a kernel list or as numbers. Raises ``ValueError`` for anything else."""
    if isinstance(value, str):
        return parse_cpuset(value)
    if isinstance(value, set | frozenset | list | tuple | range):
        if not all(type(cpu) is int and 0 <= cpu <= MAX_CPU for cpu in value):
            raise ValueError(f"CPU numbers are whole numbers from 0 to {MAX_CPU}")
        return frozenset(value)
    raise ValueError('expected a CPU list such as "0-3,8"')


CPUSet = Annotated[
    frozenset[int],
    BeforeValidator(read_cpuset),
    PlainSerializer(format_cpuset, return_type=str),
    WithJsonSchema({"type": "string", "description": "kernel CPU list", "examples": ["0-3,8", ""]}),
]
"""A set of CPU numbers: kernel list in JSON, ``frozenset[int]`` in Python."""
