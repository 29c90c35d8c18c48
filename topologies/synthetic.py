"""Machines from one line of text, in the manner of hwloc's synthetic descriptions.

``socket:2 numa:4 l3:2 core:8 cpu:2`` is two sockets of four NUMA nodes each, with two L3s in each of those, eight
cores in each L3 and two CPUs in each core. Levels run from the outermost in; those left out do not exist.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from models import CPU, BadInputError, NUMANode, Topology
from topologies.shape import Shape

MAX_CPUS = 16_384
MAX_NUMA_NODES = 256
"""More than any machine we know of; the matrix of distances grows with the square."""

LOCAL, SAME_SOCKET, OTHER_SOCKET = 10, 12, 21
"""Distances between NUMA nodes, as two-socket servers with several NUMA nodes a socket report them."""

_ALIASES = {
    "socket": ("package", "pack"),
    "die": (),
    "numa": ("numanode",),
    "l3": ("l3cache",),
    "core": (),
    "cpu": ("pu",),
}
_LEVELS = {name: level for level, others in _ALIASES.items() for name in (level, *others)}
_NESTING = ("socket", "die", "core", "cpu")
_NUMBERINGS = ("linux", "compact")
_WORD = re.compile(r"([a-z]\w*):(\d{1,9})", re.ASCII)
_LOOKS = re.compile(r"\s*[a-z]\w*:[^/\\{}<>]*", re.ASCII | re.IGNORECASE)
_EXAMPLE = "socket:2 numa:4 l3:2 core:8 cpu:2"


def looks_synthetic(text: str) -> bool:
    """Whether the text is meant as a synthetic description, right or wrong, rather than as a path or a name."""
    return len(text) < 1000 and _LOOKS.fullmatch(text) is not None


def build(text: str) -> Topology:
    """The machine that the text describes, named by its shape, for example ``2s8n-64c128t``.

    Thread t of core g is CPU g + t * cores, which is how Linux numbers x86 servers; the word
    ``numbering:compact`` makes siblings adjacent, as on POWER. Raises ``BadInputError`` with the offending word.
    """
    words = text.lower().split()
    compact = _numbering(words) == "compact"
    counts = _counts([word for word in words if not word.startswith("numbering:")])
    return machine(numbered(rows(counts), compact=compact))


def rows(counts: Mapping[str, int]) -> list[CPU]:
    """The CPUs of a uniform machine, core by core. ``counts``: level to number in each parent, outermost first."""
    sizes = list(counts.values())
    inside = {level: math.prod(sizes[depth + 1 :]) for depth, level in enumerate(counts) if level != "cpu"}
    inside.setdefault("core", 1)
    return [
        CPU.model_validate({"cpu": place, **{level: place // size for level, size in inside.items()}})
        for place in range(math.prod(sizes))
    ]


def numbered(cpus: Iterable[CPU], *, compact: bool = False) -> list[CPU]:
    """The same CPUs with new numbers; cores are counted in the order in which they come.

    First threads of all cores come first, then second threads, …; ``compact``: core by core.
    """
    cores: dict[int, list[CPU]] = {}
    for cpu in cpus:
        cores.setdefault(cpu.core, []).append(cpu)
    placed = [
        (thread, cpu.model_copy(update={"core": core}))
        for core, siblings in enumerate(cores.values())
        for thread, cpu in enumerate(siblings)
    ]
    in_order = placed if compact else sorted(placed, key=lambda item: item[0])
    return [cpu.model_copy(update={"cpu": number}) for number, (_, cpu) in enumerate(in_order)]


def machine(
    cpus: Iterable[CPU],
    distance: Callable[[int, int], int] | None = None,
    *,
    empty_nodes: Iterable[int] = (),
    name: str = "",
) -> Topology:
    """A machine of these CPUs: NUMA nodes listed, distances filled in, named by its shape if no name is given.

    ``distance``: from one NUMA node's id to another's; 10 local, 12 within a socket, 21 across if left out.
    ``empty_nodes``: ids of NUMA nodes without CPUs.
    """
    cpus = tuple(cpus)
    distance = distance or by_socket(cpus, LOCAL, SAME_SOCKET, OTHER_SOCKET)
    ids = sorted({cpu.numa for cpu in cpus if cpu.numa is not None}.union(empty_nodes))
    nodes = tuple(NUMANode(id=a, distances={b: distance(a, b) for b in ids}) for a in ids)
    found = Topology(cpus=cpus, numa_nodes=nodes, name=name)
    return found if name else found.model_copy(update={"name": str(Shape.of(found))})


def by_socket(cpus: Iterable[CPU], local: int, same: int, other: int) -> Callable[[int, int], int]:
    """Distances between NUMA nodes that depend only on whether they share a socket."""
    sockets: dict[int | None, set[int]] = {}
    for cpu in cpus:
        sockets.setdefault(cpu.numa, set()).add(cpu.socket)
    return lambda a, b: local if a == b else same if sockets[a] & sockets[b] else other


def _numbering(words: list[str]) -> str:
    asked = [word.partition(":")[2] for word in words if word.startswith("numbering:")]
    if len(asked) > 1 or any(value not in _NUMBERINGS for value in asked):
        raise _bad("numbering:" + asked[-1], "numbering is given once, as numbering:linux or numbering:compact")
    return asked[0] if asked else "linux"


def _counts(words: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        level, count = _level(word)
        if level in counts:
            raise _bad(word, f"level {level} is given twice")
        counts[level] = count
    if not counts.keys() & {"core", "cpu"}:
        raise _bad(words[-1] if words else "", f"no core:N or cpu:N at the end, as in {_EXAMPLE!r}")
    _check_order(list(counts))
    _check_size(counts)
    return counts


def _level(word: str) -> tuple[str, int]:
    match = _WORD.fullmatch(word)
    if match is None:
        raise _bad(word, f"not of the form level:count, as in {_EXAMPLE!r}")
    if match[1] not in _LEVELS:
        raise _bad(word, f"unknown level {match[1]}; known are {', '.join(_ALIASES)} and numbering")
    if int(match[2]) == 0:
        raise _bad(word, "the count must be at least 1")
    return _LEVELS[match[1]], int(match[2])


def _check_order(levels: list[str]) -> None:
    for outer, inner in pairwise(level for level in levels if level in _NESTING):
        if _NESTING.index(inner) < _NESTING.index(outer):
            raise _bad(inner, f"a {inner} does not lie inside a {outer}; write levels from the outermost in")
    for level in levels:
        if level in ("numa", "l3") and {"core", "cpu"} & set(levels[: levels.index(level)]):
            raise _bad(level, "comes after core or cpu; write levels from the outermost in")


def _check_size(counts: Mapping[str, int]) -> None:
    total = math.prod(counts.values())
    if total > MAX_CPUS:
        raise _bad(_as_words(counts), f"{total} CPUs; at most {MAX_CPUS} are allowed")
    upto = list(counts)[: list(counts).index("numa") + 1] if "numa" in counts else []
    if (nodes := math.prod(counts[level] for level in upto)) > MAX_NUMA_NODES:
        raise _bad(f"numa:{counts['numa']}", f"{nodes} NUMA nodes; at most {MAX_NUMA_NODES} are allowed")


def _as_words(counts: Mapping[str, int]) -> str:
    return " ".join(f"{level}:{count}" for level, count in counts.items())


def _bad(word: str, reason: str) -> BadInputError:
    return BadInputError(reason, place=repr(word[:80]), file="synthetic description")
