"""A machine from what ``lscpu`` prints with one row a CPU: ``-p``, ``-e`` and ``-J -e``, with ``-y`` too.

Columns are found by their names, since they vary with version, machine and options.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from models import BadInputError, Topology
from models.cpuset import MAX_CPU
from topologies.readers.assemble import CPUFacts, Key, assemble
from topologies.readers.text import check_length

CPURow = Mapping[str, str]
"""Lower-case column name to value; columns without a value are left out."""

MAX_SIBLINGS = 8
"""The most CPUs a core has anywhere (POWER8, POWER9)."""

_WAY_OUT = "use lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"
_ABSENT = ("", "-", "None")
_OFFLINE = ("n", "no", "false")
_CACHE = re.compile(r"l([3-9])", re.ASCII)
_BARE_DASH = re.compile(r"(?<=:)[ \t]*-[ \t]*(?=[,}\r\n])")


def read_lscpu_table(text: str, *, name: str = "") -> Topology:
    """The machine of ``lscpu -p`` or ``lscpu -e`` text. Raises ``BadInputError`` with the line."""
    check_length(text)
    return _read_rows(_table_rows(text.splitlines()), name)


def read_lscpu_rows(rows: object, *, name: str = "") -> Topology:
    """The machine of the ``cpus`` list of ``lscpu -J -e``. Raises ``BadInputError`` with the dotted path."""
    return _read_rows(_json_rows(rows), name)


def repair_json(text: str) -> str:
    """JSON of ``lscpu -J -e``, valid: version 2.38 prints ``"node": -,`` for CPUs that are offline."""
    return _BARE_DASH.sub(" null", text)


def _table_rows(lines: Iterable[str]) -> Iterator[tuple[str, CPURow]]:
    header: list[str] | None = None
    for number, line in enumerate(lines, start=1):
        place, cells = f"line {number}", _cells(line)
        if not cells:
            continue
        if cells[0].lstrip("# ").lower() == "cpu":
            header = [cells[0].lstrip("# "), *cells[1:]]
        elif not line.startswith("#"):
            if header is None:
                raise BadInputError("has no header line such as '# CPU,Core,Socket,Node'", place=place)
            yield place, _row(header, cells, place)


def _cells(line: str) -> list[str]:
    """``-p`` separates by commas, ``-e`` by blanks; a comment that is not a header stays in one piece."""
    return [cell.strip() for cell in line.split(",")] if "," in line or line.startswith("#") else line.split()


def _json_rows(rows: object) -> Iterator[tuple[str, CPURow]]:
    if not isinstance(rows, list):
        raise BadInputError("is not a list", place="cpus")
    for number, row in enumerate(rows):
        place = f"cpus.{number}"
        if not isinstance(row, dict):
            raise BadInputError("is not an object", place=place)
        yield place, _row([str(key) for key in row], [_text(value) for value in row.values()], place)


def _text(value: Any) -> str:  # noqa: ANN401 - JSON is anything
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(names: list[str], values: list[str], place: str) -> CPURow:
    """One row; ``L1d:L1i:L2`` with value ``0:0:1`` is three columns."""
    if len(names) != len(values):
        raise BadInputError(f"has {len(values)} columns, the header has {len(names)}", place=place)
    row: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        parts = name.lower().split(":")
        row |= zip(parts, value.split(":") if len(parts) > 1 else [value], strict=False)
    return {name: value for name, value in row.items() if name and value not in _ABSENT}


def _read_rows(rows: Iterable[tuple[str, CPURow]], name: str) -> Topology:
    online = [(place, row) for place, row in islice(rows, MAX_CPU + 2) if _is_online(row)]
    if len(online) > MAX_CPU + 1:
        raise BadInputError(f"has more than {MAX_CPU + 1} rows")
    if not online:
        raise BadInputError(f"lists no online CPU; {_WAY_OUT}")
    facts = [_facts_of(row, place) for place, row in online]
    for core, count in Counter(fact.siblings for fact in facts).items():
        if count > MAX_SIBLINGS:
            # ``-y`` prints the kernel's core ids, which repeat; seen on RISC-V, where no cache tells cores apart.
            raise BadInputError(
                f"{count} CPUs have core {_core_number(core)} of one socket, more than the {MAX_SIBLINGS} of "
                "any core: core numbers repeat; use lscpu -p without -y, or the /sys directory"
            )
    return assemble(facts, name=name)


def _core_number(core: Key) -> object:
    return core[1] if isinstance(core, tuple) else core


def _is_online(row: CPURow) -> bool:
    """By the ONLINE column, else by whether anything but its number is known of the CPU."""
    if "online" in row:
        return row["online"].lower() not in _OFFLINE
    return len(row) > 1


def _facts_of(row: CPURow, place: str) -> CPUFacts:
    cpu, core, numa = (_number(row, column, place) for column in ("cpu", "core", "node"))
    if cpu is None or core is None:
        column = "CPU" if cpu is None else "CORE"
        raise BadInputError(f"has no {column} number; {_WAY_OUT}", place=place)
    socket = (row.get("drawer"), row.get("book"), row["socket"]) if "socket" in row else None
    return CPUFacts(
        cpu=cpu,
        siblings=(socket, core, _private_cache(row)),
        socket=socket,
        cluster=row.get("cluster"),
        numa=numa,
        l3=_last_level_cache(row),
    )


def _private_cache(row: CPURow) -> str | None:
    """A cache that all siblings share, which tells cores with the same number apart.

    ``lscpu`` numbers cores anew for each CPU model (big.LITTLE), and with ``-y`` for each die. L2 is taken
    first, since Bulldozer has an L1d, and QEMU an L1, for each CPU.
    """
    return next((row[level] for level in ("l2", "l1i", "l1d") if level in row), None)


def _last_level_cache(row: CPURow) -> Key:
    levels = [column for column in row if _CACHE.fullmatch(column)]
    return (max(levels), row[max(levels)]) if levels else None


def _number(row: CPURow, column: str, place: str) -> int | None:
    text = row.get(column)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or (column == "cpu" and int(text) > MAX_CPU):
        raise BadInputError(f"{column.upper()} {text[:40]!r} is not a whole number up to {MAX_CPU}", place=place)
    return int(text)
