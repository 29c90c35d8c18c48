"""The machine of the command line: its source, and what the options say is reserved, held or free."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from models import BadInputError, Topology, format_cpuset, parse_cpuset
from topologies.readers.kubelet import read_cpu_manager_state
from topologies.readers.text import read_file

OTHERS, UNNAMED = "others", "held"
"""Holders of CPUs of which ``--free`` says only that they are not free, and of those of a bare ``--held LIST``."""


def overlaid(topology: Topology, reserved: str | None, held: Iterable[str]) -> Topology:
    """The machine with CPUs reserved in place of, and held besides, those of its document.

    Each ``held`` is ``[NAME=]LIST`` or the path of a kubelet's ``cpu_manager_state``.
    """
    holdings = dict(topology.held)
    for text in held:
        for name, cpus in _holdings(text).items():
            holdings[name] = holdings.get(name, frozenset()) | cpus
    changes = {"held": holdings} | ({} if reserved is None else {"reserved": cpu_list(reserved, "--reserved")})
    return _changed(topology, changes)


def with_free(topology: Topology, free: str) -> Topology:
    """The machine on which these CPUs are free, less reserved ones, and all others are held."""
    cpus = cpu_list(free, "--free")
    if missing := cpus - topology.online:
        raise BadInputError(f"CPUs {format_cpuset(missing)} are not online", place="--free")
    taken = topology.allocatable - cpus
    return _changed(topology, {"held": {OTHERS: taken} if taken else {}})


def cpu_list(text: str, option: str) -> frozenset[int]:
    """The CPUs of a kernel list; ``BadInputError`` naming the option."""
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise BadInputError(str(error), place=option) from error


def _holdings(text: str) -> dict[str, frozenset[int]]:
    if _is_path(text):
        return read_cpu_manager_state(read_file(Path(text)), file=text)[0]
    name, named, cpus = text.rpartition("=")
    try:
        return {name or UNNAMED: parse_cpuset(cpus)}
    except ValueError as error:
        otherwise = "" if named else f", and there is no file {text[:80]!r}"
        raise BadInputError(f"{error}{otherwise}", place="--held") from None


def _is_path(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False  # No name that the system can look up: too long, or with a NUL.


def _changed(topology: Topology, changes: Mapping[str, object]) -> Topology:
    try:
        return Topology.model_validate({**dict(topology), **changes})
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from error
