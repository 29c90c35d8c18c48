"""A machine from its own document, the JSON of ``Topology``."""

from typing import Any

from pydantic import ValidationError

from models import BadInputError, Topology
from models.cpuset import MAX_CPU

_MARKS = frozenset({"apiVersion", "api_version", "kind", "cpus"})


def read_native(document: Any, *, name: str = "") -> Topology:  # noqa: ANN401 - JSON is anything
    """The machine of a parsed document. Raises ``BadInputError`` with the dotted path of the first mistake."""
    if not isinstance(document, dict) or not _MARKS & document.keys():
        raise BadInputError("is JSON, but neither a topology document (apiVersion, kind, cpus) nor of lscpu -J")
    _check_lengths(document)
    try:
        topology = Topology.model_validate(document)
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None
    return topology if topology.name else topology.model_copy(update={"name": name[:253]})


def _check_lengths(document: dict[str, Any]) -> None:
    """Refuse lists that are too long before each of their entries becomes an error of its own."""
    for key, value in document.items():
        if isinstance(value, list) and len(value) > MAX_CPU + 1:
            raise BadInputError(f"has {len(value)} entries, more than {MAX_CPU + 1}", place=key[:40])
