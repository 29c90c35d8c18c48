"""Any source of a machine becomes a ``Topology``: what it is, is recognised by its content."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from models import BadInputError, Topology
from topologies import catalog, synthetic
from topologies.readers.hwloc import read_hwloc
from topologies.readers.lscpu import read_lscpu_rows, read_lscpu_table, repair_json
from topologies.readers.lscpu_summary import read_lscpu_json, read_lscpu_summary
from topologies.readers.native import read_native
from topologies.readers.sysfs import read_sysfs
from topologies.readers.text import parse_json, read_file, read_stream

HOST = "host"
STDIN = "-"

_LSCPU_ONLY = frozenset({"node", "online", "drawer", "book", "maxmhz", "minmhz", "mhz", "address", "polarization"})
_HEAD = 4096
"""How much of a text shows what it is."""
_TEXT_FORMATS: tuple[tuple[re.Pattern[str], Callable[..., Topology]], ...] = (
    (re.compile(r"\A\s*<"), read_hwloc),
    (re.compile(r"^[ \t]*(?:On-line )?CPU\(s\)(?: list)?:", re.MULTILINE), read_lscpu_summary),
    (re.compile(r"^#? ?CPU[ ,\n]|\A[\d,]+\n", re.IGNORECASE | re.MULTILINE), read_lscpu_table),
)


def load(source: str, *, stdin: TextIO | None = None) -> Topology:
    """The machine that ``source`` names. Raises ``BadInputError`` with file, place and reason.

    In this order: ``-`` (standard input), ``host`` (this machine), a catalog name, a path, and a synthetic
    string. ``./host`` is a path. A directory holds a ``/sys`` tree; a file or standard input holds a topology
    document, hwloc XML, or what ``lscpu`` prints.
    """
    if source == STDIN:
        return _within("<stdin>", lambda: read_text(read_stream(stdin or sys.stdin), name="stdin"))
    if source == HOST:
        return _within(HOST, lambda: read_sysfs(Path("/"), name=HOST))
    if source in catalog.names():
        return catalog.read(source)
    path = _existing(source)
    if path is not None:
        return _within(source, lambda: _read_path(path))
    if synthetic.looks_synthetic(source):
        return synthetic.build(source)
    raise _unknown(source)


def _within(file: str, read: Callable[[], Topology]) -> Topology:
    try:
        return read()
    except BadInputError as error:
        raise error.within(file) from None


def _existing(source: str) -> Path | None:
    try:
        return Path(source) if source and Path(source).exists() else None
    except PermissionError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", file=source) from None
    except (OSError, ValueError):
        return None  # No name that the system can look up: too long, or with a NUL.


def _read_path(path: Path) -> Topology:
    if path.is_dir():
        return read_sysfs(path, name=path.resolve().name)
    return read_text(read_file(path), name=path.stem)


def _unknown(source: str) -> BadInputError:
    try:
        catalog.read(source)
    except BadInputError as error:
        reason = f"no file or directory has this name, and {error.reason}"
    else:
        reason = "no file or directory has this name"
    others = "A synthetic machine is written 'socket:2 core:8 cpu:2', this machine 'host', standard input '-'"
    return BadInputError(f"{reason}. {others}", file=repr(source[:80]))


def read_text(text: str, *, name: str = "") -> Topology:
    """The machine that the text describes: topology document, hwloc XML or lscpu output."""
    if text.lstrip()[:1] in ("{", "["):
        return _read_json(text, name)
    for pattern, read in _TEXT_FORMATS:
        if pattern.search(text[:_HEAD]):
            return read(text, name=name)
    raise BadInputError(
        "this is neither a topology document (JSON) nor hwloc XML nor output of lscpu (plain, -p, -e, -J)"
    )


def _read_json(text: str, name: str) -> Topology:
    try:
        document = parse_json(text)
    except BadInputError:
        document = parse_json(repair_json(text)) if '"cpus"' in text[:200] else None
        if document is None:
            raise
    if isinstance(document, dict) and document.keys() == {"lscpu"}:
        return read_lscpu_json(document["lscpu"], name=name)
    if _is_lscpu_table(document):
        return read_lscpu_rows(document["cpus"], name=name)
    return read_native(document, name=name)


def _is_lscpu_table(document: Any) -> bool:  # noqa: ANN401 - JSON is anything
    """Whether it is of ``lscpu -J -e``: a ``cpus`` list as ours, but other columns, or texts for numbers."""
    if not isinstance(document, dict) or document.keys() != {"cpus"} or not isinstance(document["cpus"], list):
        return False
    first = next((row for row in document["cpus"] if isinstance(row, dict)), {})
    return bool(_LSCPU_ONLY & first.keys()) or ":" in "".join(first) or isinstance(first.get("cpu"), str)
