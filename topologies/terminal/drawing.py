"""A machine drawn for the terminal: where its CPUs lie, and which of them are free, reserved or held by whom.

Everything can be read without colour: a CPU is one character, a core a word of them.
"""

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from models import CPU, Topology, format_cpuset
from topologies.overlay import UNNAMED
from topologies.shape import Shape
from topologies.terminal.cpu_list import CPUList
from topologies.terminal.layout import Cell, Layout
from topologies.terminal.streams import printable

_COLOURS = ("cyan", "magenta", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_yellow", "bright_blue")
_LETTERS = string.ascii_letters + string.digits
_LIST_WIDTH = 24

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Mark:
    """How the CPUs of one owner are drawn."""

    glyph: str
    style: str


FREE, RESERVED, CROWD = Mark(".", "green"), Mark("#", "red"), "+"


@dataclass(frozen=True)
class Heading:
    """A heading: the domains it names, its depth, its CPUs, and whether its L3s follow directly."""

    domains: tuple[tuple[str, int | None], ...]
    depth: int
    cpus: Sequence[CPU]
    innermost: bool


class Drawing:
    """A machine as rich draws it, as wide as the terminal.

    ``owners`` says of CPUs what the legend calls them, by default who holds them in the document; CPUs that it
    does not name are reserved or free as the document says. Print it with ``rich.console.Console``.
    """

    def __init__(self, topology: Topology, owners: Mapping[int, str] | None = None) -> None:
        self.topology = topology
        self.owners = dict(holders(topology) if owners is None else owners)
        self.cpus = sorted(topology.cpus, key=lambda cpu: cpu.cpu)
        self.marks = {
            owner: Mark(_LETTERS[i] if i < len(_LETTERS) else CROWD, _COLOURS[i % len(_COLOURS)])
            for i, owner in enumerate(dict.fromkeys(self.owners.values()))
        }
        self.notes = _spanning(self.cpus)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = min(options.max_width, options.size.width)
        yield from self._heading()
        yield from self._sockets(width)
        yield ""
        yield self._legend()
        for (what, domain), note in self.notes.items():
            yield Text(f"* {what} {domain} lies over {note}; each of them shows its part")
        yield from _distances(self.topology, width)
        yield from _devices(self.topology)

    def _heading(self) -> Iterator[RenderableType]:
        shape = Shape.of(self.topology)
        siblings = " or ".join(map(str, shape.smt))
        has_numa = any(cpu.numa is not None for cpu in self.cpus)
        parts = (
            _many(shape.sockets, "socket"),
            _many(shape.numa_nodes, "NUMA node") if has_numa else "no NUMA",
            _many(shape.l3s, "L3") if shape.l3s else "no L3",
            _many(shape.cores, "core"),
            f"{_many(shape.cpus, 'CPU')} ({siblings} a core)",
        )
        yield Text(printable(self.topology.name) or "unnamed machine", style="bold")
        yield Text(", ".join(parts))

    def _sockets(self, width: int) -> Iterator[Text]:
        blocks = list(_blocks(self.cpus))
        cells = [self._cells(block.cpus) if block.innermost else [] for block in blocks]
        layout = Layout.of([cell for row in cells for cell in row], width)
        for block, row in zip(blocks, cells, strict=True):
            if block.depth == 0:
                yield Text()
            yield self._summary(block)
            yield from layout.lines(row, indent=4)

    def _summary(self, block: Heading) -> Text:
        words = (f"no {what}" if i is None else f"{what} {i}{self._star(what, i)}" for what, i in block.domains)
        cores = len({cpu.core for cpu in block.cpus})
        free = sum(self._mark(cpu.cpu) is FREE for cpu in block.cpus)
        where = short((cpu.cpu for cpu in block.cpus), _LIST_WIDTH)
        tail = f"  {where}  {_many(cores, 'core')}, {_many(len(block.cpus), 'CPU')}, {free} free"
        return Text.assemble("  " * block.depth, (", ".join(words), "bold"), tail)

    def _cells(self, cpus: Sequence[CPU]) -> list[Cell]:
        return [
            Cell(self._label(l3, kind), short((cpu.cpu for cpu in group), _LIST_WIDTH), self._cores(group))
            for (l3, kind), group in _grouped(cpus, lambda cpu: (cpu.l3, cpu.core_type))
        ]

    def _label(self, l3: int | None, kind: str) -> str:
        name = "no L3" if l3 is None else f"L3 {l3}{self._star('L3', l3)}"
        return name if kind == "standard" else f"{name} {kind}"

    def _cores(self, cpus: Sequence[CPU]) -> tuple[Text, ...]:
        cores = (group for _, group in _grouped(cpus, lambda cpu: cpu.core))
        marks = ([self._mark(cpu.cpu) for cpu in core] for core in cores)
        return tuple(Text.assemble(*((mark.glyph, mark.style) for mark in core)) for core in marks)

    def _mark(self, cpu: int) -> Mark:
        if cpu in self.owners:
            return self.marks[self.owners[cpu]]
        return RESERVED if cpu in self.topology.reserved else FREE

    def _star(self, what: str, domain: int | None) -> str:
        return "*" if (what, domain) in self.notes else ""

    def _legend(self) -> Table:
        owned: dict[str, set[int]] = {owner: set() for owner in self.marks}
        for cpu, owner in self.owners.items():
            owned[owner].add(cpu)
        reserved = self.topology.reserved - self.owners.keys()
        free = self.topology.online - reserved - self.owners.keys()
        rows = [(FREE, "free", free), (RESERVED, "reserved", reserved)]
        rows += [(self.marks[owner], printable(owner), frozenset(cpus)) for owner, cpus in owned.items()]
        table = Table.grid(padding=(0, 2, 0, 0))
        for mark, what, cpus in rows:
            if cpus:
                table.add_row(Text(mark.glyph, mark.style), what, _many(len(cpus), "CPU"), CPUList(cpus))
        return table


def holders(topology: Topology) -> dict[int, str]:
    """Which CPU is held by which claim of the document, as the legend says it."""
    named = {owner: "held" if owner == UNNAMED else f"held by {owner}" for owner in topology.held}
    return {cpu: named[owner] for owner, cpus in topology.held.items() for cpu in sorted(cpus)}


def short(cpus: Iterable[int], width: int) -> str:
    """Kernel list of the CPUs, cut to the width: ``0,2,4,6,..,78``."""
    text = format_cpuset(cpus)
    if len(text) <= width:
        return text
    last = text.rpartition(",")[2]
    return text[: width - len(last) - 3].rpartition(",")[0] + ",..," + last


def _blocks(cpus: Sequence[CPU]) -> Iterator[Heading]:
    """Sockets and, below each, its NUMA nodes; a socket and its only NUMA node share a heading."""
    has_numa = any(cpu.numa is not None for cpu in cpus)
    for socket, in_socket in _grouped(cpus, lambda cpu: cpu.socket):
        nodes = _grouped(in_socket, lambda cpu: cpu.numa)
        if len(nodes) == 1:
            numa = (("NUMA node", nodes[0][0]),) if has_numa else ()
            yield Heading((("socket", socket), *numa), 0, in_socket, innermost=True)
            continue
        yield Heading((("socket", socket),), 0, in_socket, innermost=False)
        for node, inside in nodes:
            yield Heading((("NUMA node", node),), 1, inside, innermost=True)


def _spanning(cpus: Sequence[CPU]) -> dict[tuple[str, int | None], str]:
    """Domains that do not lie in one domain of the level above, with the domains that they span."""
    levels: tuple[tuple[str, Callable[[CPU], int | None], str, Callable[[CPU], int | None]], ...] = (
        ("NUMA node", lambda cpu: cpu.numa, "sockets", lambda cpu: cpu.socket),
        ("L3", lambda cpu: cpu.l3, "NUMA nodes", lambda cpu: cpu.numa),
        ("L3", lambda cpu: cpu.l3, "sockets", lambda cpu: cpu.socket),
    )
    notes: dict[tuple[str, int | None], str] = {}
    for inner, inner_of, outer, outer_of in levels:
        for domain, group in _grouped(cpus, inner_of):
            over = {outer_of(cpu) for cpu in group} - {None}
            if domain is not None and len(over) > 1:
                notes.setdefault((inner, domain), f"{outer} {format_cpuset(i for i in over if i is not None)}")
    return notes


def _distances(topology: Topology, width: int) -> Iterator[RenderableType]:
    """The matrix; where it is too wide, for each NUMA node with CPUs what lies at which distance."""
    nodes = {node.id: node.distances for node in sorted(topology.numa_nodes, key=lambda node: node.id)}
    with_cpus = {cpu.numa for cpu in topology.cpus}
    if empty := nodes.keys() - with_cpus:
        yield Text(f"\nNUMA nodes without CPUs: {format_cpuset(empty)}")
    if len(nodes) < 2 or not all(nodes.values()):
        return
    yield Text("\nNUMA distances", style="bold")
    cell = max(4, *(len(str(node)) + 1 for node in nodes))
    if (len(nodes) + 1) * cell > width:
        yield from (_distances_of(node, row) for node, row in nodes.items() if node in with_cpus)
        return
    for head, *row in (("", *nodes), *((a, *(nodes[a][b] for b in nodes)) for a in nodes)):
        yield Text("".join(f"{value!s:>{cell}}" for value in (head, *row)))


def _distances_of(node: int, row: Mapping[int, int]) -> Text:
    alike = sorted(_grouped(row, row.__getitem__))
    return Text(f"{node:>4}: " + "; ".join(f"{distance} to {format_cpuset(to)}" for distance, to in alike))


def _devices(topology: Topology) -> Iterator[RenderableType]:
    if not topology.devices:
        return
    yield Text()
    table = Table("device", "PCI address", "PCI root", "NUMA node", "local CPUs", box=None, padding=(0, 2, 0, 0))
    for device in topology.devices:
        numa = "-" if device.numa is None else str(device.numa)
        local = Text("-") if device.local_cpus is None else CPUList(device.local_cpus)
        words = (device.name, device.pci or "-", device.pci_root or "-", numa)
        table.add_row(*(Text(printable(word)) for word in words), local)
    yield table


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> list[tuple[_K, list[_T]]]:
    """Groups of equal keys, in the order in which their first items come."""
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())
