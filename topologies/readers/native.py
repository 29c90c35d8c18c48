"""A machine from its own document, the JSON of ``Topology``."""

import re
from typing import Any

from pydantic import ValidationError

from models import CPU, BadInputError, Device, NUMANode, Request, Topology
from models.cpuset import MAX_CPU

_MARKS = frozenset({"apiVersion", "api_version", "kind", "cpus"})
_KEYS = [key for model in (Topology, CPU, NUMANode, Device, Request) for key in model.model_fields]
_PLAIN_ID = re.compile(r"0|[1-9][0-9]*")


def read_native(document: Any, *, name: str = "") -> Topology:  # noqa: ANN401 - JSON is anything
    """The machine of a parsed document. Raises ``BadInputError`` with the dotted path of the first mistake."""
    if not isinstance(document, dict) or not _MARKS & document.keys():
        raise BadInputError(
            "is JSON, but neither a topology document (apiVersion, kind, cpus) nor output of lscpu -J"
        )
    _check_lengths(document)
    _check_distances(document.get("numa_nodes"))
    try:
        topology = Topology.model_validate(document)
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, known=_KEYS) from None
    return topology if topology.name else topology.model_copy(update={"name": name[:253]})


def _check_lengths(document: dict[str, Any]) -> None:
    """Refuse lists that are too long before each of their entries becomes an error of its own."""
    for key, value in document.items():
        if isinstance(value, list) and len(value) > MAX_CPU + 1:
            raise BadInputError(f"has {len(value)} entries, more than {MAX_CPU + 1}", place=key[:40])


def _check_distances(nodes: Any) -> None:  # noqa: ANN401 - JSON is anything
    """Refuse ids such as ``00``, which as numbers fall together with others, so that a distance would be lost."""
    for index, node in enumerate(nodes if isinstance(nodes, list) else ()):
        distances = node.get("distances") if isinstance(node, dict) else None
        for key in distances if isinstance(distances, dict) else ():
            if not _PLAIN_ID.fullmatch(key):
                reason = f"{key[:80]!r} is not a NUMA node id in plain decimal, such as 0 or 12"
                raise BadInputError(reason, place=f"numa_nodes.{index}.distances")
