"""Rows of cores, side by side and in columns, as wide as the terminal allows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.text import Text

_GAP = "  "
_BESIDE = 4

_T = TypeVar("_T")


@dataclass(frozen=True)
class Cell:
    """The cores of one L3 and one core type within one NUMA node and socket, one word each."""

    label: str
    cpus: str
    cores: tuple[Text, ...]


@dataclass(frozen=True)
class Layout:
    """Common widths of all cells, so that columns line up over the whole machine."""

    label: int
    cpus: int
    core: int
    per_line: int
    width: int

    @classmethod
    def of(cls, cells: Sequence[Cell], width: int) -> "Layout":
        """Widths that hold all cells; as many cores a line as fit, in fours where there are many."""
        label = max(len(cell.label) for cell in cells)
        cpus = max(len(cell.cpus) for cell in cells)
        core = max(len(word) for cell in cells for word in cell.cores)
        fit = max(1, (width - 4 - label - cpus - 2 * len(_GAP) + 1) // (core + 1))
        most = max(len(cell.cores) for cell in cells)
        per_line = most if most <= fit else fit - fit % 4 if fit >= 8 else fit
        return cls(label, cpus, core, per_line, width)

    def lines(self, cells: Sequence[Cell], indent: int) -> Iterator[Text]:
        """The cells side by side where all of them take one line and the width allows, else one below another."""
        whole = self.label + self.cpus + 2 * len(_GAP) + self.per_line * (self.core + 1) - 1
        beside = max(1, (self.width - indent + _BESIDE) // (whole + _BESIDE))
        if any(len(cell.cores) > self.per_line for cell in cells):
            beside = 1
        for row in _chunks(cells, beside):
            columns = [list(self._cell_lines(cell)) for cell in row]
            for parts in zip(*columns, strict=True):
                line = Text(" " * _BESIDE).join(_padded(part, whole) for part in parts)
                line.rstrip()
                yield Text(" " * indent) + line

    def _cell_lines(self, cell: Cell) -> Iterator[Text]:
        head = f"{cell.label:<{self.label}}{_GAP}{cell.cpus:<{self.cpus}}{_GAP}"
        for cores in _chunks(cell.cores, self.per_line):
            yield Text(head) + Text(" ").join(_padded(core, self.core) for core in cores)
            head = " " * len(head)


def _chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _padded(text: Text, width: int) -> Text:
    padded = text.copy()
    padded.pad_right(width - len(text))
    return padded
