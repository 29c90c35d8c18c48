"""Well-known machines, one JSON document each; ``README.md`` says where the facts come from."""

from difflib import get_close_matches
from importlib.resources import files

from pydantic import ValidationError

from models import BadInputError, Topology

_SUFFIX = ".json"


def names() -> list[str]:
    """The names of all machines, sorted."""
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))


def read(name: str) -> Topology:
    """The machine of that name. Raises ``BadInputError`` with the nearest names if there is none."""
    if name not in names():
        raise BadInputError(f"no such machine in the catalog; {_nearest(name)}", file=name[:80])
    try:
        return Topology.model_validate_json((files(__name__) / (name + _SUFFIX)).read_bytes())
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=name) from error


def _nearest(name: str) -> str:
    known, asked = names(), name.lower()
    nearest = [other for other in known if asked and asked in other] or get_close_matches(asked, known, cutoff=0.5)
    if not nearest:
        return "'cpusat topology list' shows all names"
    return f"nearest: {', '.join(nearest[:5])}"
