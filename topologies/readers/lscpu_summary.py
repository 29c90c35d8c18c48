"""A machine from the summary that plain ``lscpu`` and ``lscpu -J`` print, where that determines it.

The summary counts cores, sockets and L3s but does not say which CPUs they hold. It is read where there is
only one possibility: one thread a core, and sockets and L3s that are the machine or its NUMA nodes. Otherwise
the error says what is left open, and that ``lscpu -p`` tells it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models import BadInputError, Topology
from models.cpuset import parse_cpuset
from topologies.readers.assemble import CPUFacts, assemble, innermost
from topologies.readers.text import check_length

Fields = Sequence[tuple[str, str]]
"""Name and value as printed, in order; names repeat where there are several CPU models."""

_NODE = re.compile(r"NUMA node(\d{1,9}) CPU\(s\)", re.ASCII)
_INSTANCES = re.compile(r"\((\d{1,6}) instances?\)", re.ASCII)
_WAY_OUT = "use lscpu -p, lscpu -J -e or the /sys directory"


@dataclass(frozen=True)
class Summary:
    """The fields of one summary, and what they say."""

    fields: Fields

    def first(self, name: str) -> str | None:
        """Value of the first field of that name."""
        return next((value for field, value in self.fields if field == name), None)

    def numbers(self, name: str) -> set[int]:
        """The values of all fields of that name that are numbers."""
        return {
            int(value) for field, value in self.fields if field == name and value.isdecimal() and len(value) < 9
        }

    @cached_property
    def online(self) -> frozenset[int]:
        """Online CPUs."""
        text = self.first("On-line CPU(s) list")
        if text is None:
            raise BadInputError(f"has no 'On-line CPU(s) list'; {_WAY_OUT}")
        return _parse(text, "On-line CPU(s) list")

    @cached_property
    def nodes(self) -> Mapping[int, frozenset[int]]:
        """Online CPUs of each NUMA node, nodes without CPUs included."""
        found = ((_NODE.fullmatch(name), name, value) for name, value in self.fields)
        return {int(match[1]): _parse(value, name) & self.online for match, name, value in found if match}


def read_lscpu_summary(text: str, *, name: str = "") -> Topology:
    """The machine of plain ``lscpu`` text, if that determines it; ``BadInputError`` otherwise."""
    check_length(text)
    pairs = (line.partition(":") for line in text.splitlines())
    return _read([(field.strip(), value.strip()) for field, _, value in pairs], name)


def read_lscpu_json(items: object, *, name: str = "") -> Topology:
    """The machine of ``lscpu -J``, flat (to 2.36) or nested (since 2.37), under the same condition."""
    return _read(list(_flatten(items)), name)


def _flatten(items: object) -> Iterator[tuple[str, str]]:
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            yield str(item.get("field", "")).strip().rstrip(":"), str(item.get("data") or "").strip()
            yield from _flatten(item.get("children"))


def _read(fields: Fields, name: str) -> Topology:
    summary = Summary(fields)
    numa = innermost(summary.nodes)
    sockets = _domain_of(summary, _count_sockets(summary), "sockets")
    l3s = _domain_of(summary, _count_l3s(summary), "L3s")
    if summary.numbers("Thread(s) per core") != {1}:
        raise BadInputError(f"does not say which CPUs are siblings of one core; {_WAY_OUT}")
    facts = [
        CPUFacts(cpu=cpu, siblings=cpu, socket=sockets.get(cpu), numa=numa.get(cpu), l3=l3s.get(cpu))
        for cpu in summary.online
    ]
    return assemble(facts, name=name, numa_ids=summary.nodes)


def _count_sockets(summary: Summary) -> int:
    """How many sockets: 0 where it is not a single number (several CPU models, books and drawers of s390)."""
    counts = summary.numbers("Socket(s)")
    return counts.pop() if len(counts) == 1 and len(summary.numbers("Core(s) per socket")) == 1 else 0


def _count_l3s(summary: Summary) -> int | None:
    """How many L3s: ``None`` without any, 0 where lscpu is too old (before 2.34) to count them."""
    caches = [name for name, _ in summary.fields if re.fullmatch(r"L\d\w? cache", name)]
    if caches and "L3 cache" not in caches:
        return None
    match = _INSTANCES.search(summary.first("L3 cache") or "")
    return int(match[1]) if match else 0


def _domain_of(summary: Summary, count: int | None, what: str) -> dict[int, int]:
    """The domain of each CPU: all in one, or one for each NUMA node with CPUs; ``BadInputError`` otherwise."""
    if count is None:
        return {}
    if count == 1:
        return dict.fromkeys(summary.online, 0)
    nodes = {node: cpus for node, cpus in summary.nodes.items() if cpus}
    covered = frozenset().union(*nodes.values())
    equal = len({len(cpus) for cpus in nodes.values()}) == 1
    if count != len(nodes) or covered != summary.online or not equal:
        question = f"which CPUs each of its {count} {what} holds" if count else f"how many {what} there are"
        raise BadInputError(f"does not say {question}; {_WAY_OUT}")
    return innermost(nodes)


def _parse(text: str, place: str) -> frozenset[int]:
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise BadInputError(str(error), place=place) from None
