"""A machine changed by options: what is reserved, held or free."""

from collections.abc import Iterable, Mapping
from itertools import chain, groupby
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
    if reserved is not None:
        topology = _changed(topology, {"reserved": cpu_list(reserved, "--reserved")})
    for file, texts in groupby(held, key=_file):
        holdings = dict(topology.held)
        for name, cpus in chain.from_iterable(_holdings(text, file).items() for text in texts):
            holdings[name] = holdings.get(name, frozenset()) | cpus
        topology = _changed(topology, {"held": holdings}, file=file)
    return topology


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


def _holdings(text: str, file: str) -> dict[str, frozenset[int]]:
    if file:
        return read_cpu_manager_state(read_file(Path(file)), file=file)[0]
    name, named, cpus = text.rpartition("=")
    try:
        return {name or UNNAMED: parse_cpuset(cpus)}
    except ValueError as error:
        otherwise = "" if named else f", and there is no file {text[:80]!r}"
        raise BadInputError(f"{error}{otherwise}", place="--held") from None


def _file(text: str) -> str:
    """The text if it is the path of a file, else nothing."""
    try:
        return text if text and Path(text).exists() else ""
    except (OSError, ValueError):
        return ""  # No name that the system can look up: too long, or with a NUL.


def _changed(topology: Topology, changes: Mapping[str, object], *, file: str = "") -> Topology:
    try:
        return Topology.model_validate({**dict(topology), **changes})
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=file) from error
