"""The requests to place: from a claims file or the topology document, changed by the options given."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from models import BadInputError, Claim, Constraint, Preference, Request, Topology
from topologies.overlay import cpu_list
from topologies.readers.text import parse_json, read_file, read_stream

STDIN = "-"
MAX_CHARACTERS = 2**20
"""More than the largest claim takes on any machine there is."""

_KEYS = (*Claim.model_fields, *Constraint.model_fields, *Request.model_fields)
_FOR_ONE = ("cpus", "name")
_NO_REQUEST = "no request: say how many CPUs with --cpus N, or give --claims FILE, or requests in the document"


def read_claim(source: str) -> Claim:
    """The claim in a YAML or JSON file: ``{requests: [...], constraints: [...]}`` or a list of requests.

    ``-`` is standard input. Raises ``BadInputError`` with file, place and reason.
    """
    file = "<stdin>" if source == STDIN else source
    try:
        document = _parse(read_stream(sys.stdin) if source == STDIN else read_file(Path(source)), file)
        if isinstance(document, list):
            document = {"requests": document}
        if not isinstance(document, dict) or "requests" not in document:
            raise BadInputError(
                "is neither a claim, {requests: [...], constraints: [...]}, nor a list of requests"
            )
        return Claim.model_validate(document)
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=file, known=_KEYS) from None
    except BadInputError as error:
        raise error.within(file) from None


def _parse(text: str, file: str) -> Any:  # noqa: ANN401 - a document is anything
    """JSON by its name or first character, else YAML. What starts like JSON may be YAML in braces."""
    from topologies.readers.yaml_text import parse_yaml

    if len(text) > MAX_CHARACTERS:
        raise BadInputError(f"{len(text)} characters are more than a claim can have; {MAX_CHARACTERS} are read")
    if file.endswith(".json"):
        return parse_json(text)
    if text.lstrip()[0] not in "{[":
        return parse_yaml(text)
    try:
        return parse_json(text)
    except BadInputError:
        return parse_yaml(text)


def wanted(
    topology: Topology, claim: Claim | None, options: Mapping[str, Any], constraints: Iterable[Constraint]
) -> Claim:
    """The claim to place. ``options`` override each request's own, ``constraints`` replace the claim's.

    ``options`` are by the names of ``Request``'s fields, as texts or numbers; ``None`` is not given. Raises
    ``BadInputError`` with the option as its place.
    """
    given = {name: _CONVERT.get(name, _as_it_is)(value) for name, value in options.items() if value is not None}
    requests = [dict(request) for request in (topology if claim is None else claim).requests]
    if not requests and "cpus" in given:
        requests = [{}]
    if not requests:
        raise BadInputError(_NO_REQUEST)
    for option in _FOR_ONE:
        if option in given and len(requests) > 1:
            reason = f"is for one request, and there are {len(requests)}; set it where they are written"
            raise BadInputError(reason, place=f"--{option}")
    rules = tuple(constraints) or (topology if claim is None else claim).constraints
    try:
        return Claim(requests=tuple(_request(request, given) for request in requests), constraints=rules)
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None


def _request(base: Mapping[str, Any], given: Mapping[str, Any]) -> Request:
    """The request under the options. Its own were read already, so that what is wrong now is the options'."""
    try:
        return Request.model_validate({**base, **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = {**base, **given}.get("name", "cpus")
        place = f"--{_dashed(str(first['loc'][0]))}" if first["loc"] else f"request {name!r}"
        raise BadInputError(first["msg"].removeprefix("Value error, "), place=place) from None


def constraint(kind: str, text: str) -> Constraint:
    """The constraint that ``--match`` or ``--distinct`` (the kind) means: ``LEVEL[:NAME,NAME]``."""
    level, _, names = text.partition(":")
    requests = tuple(name.strip() for name in names.split(",")) if names else ()
    try:
        return Constraint.model_validate({kind: level, "requests": requests})
    except ValidationError:
        reason = f"{text[:80]!r} is not LEVEL or LEVEL:NAME,NAME with a level of numa, socket, l3"
        raise BadInputError(reason, place=f"--{kind}") from None


def _numa_min(text: str) -> int | str:
    if text == "all":
        return text
    if text.isascii() and text.isdecimal() and 1 <= len(text) <= 9:
        return int(text)
    raise BadInputError(f"{text[:80]!r} is neither a number of at least 1 nor 'all'", place="--numa-min")


def _strict(texts: Iterable[str]) -> bool | frozenset[str]:
    names = [name.strip().replace("-", "_") for text in texts for name in text.split(",")]
    if names in (["all"], ["none"]):
        return names == ["all"]
    if unknown := set(names) - set(get_args(Preference)):
        known = ", ".join(map(_dashed, get_args(Preference)))
        reason = f"{min(unknown)[:80]!r} is not one of {known}; or give 'all' or 'none' alone"
        raise BadInputError(reason, place="--strict")
    return frozenset(names)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 - an option's value
    return value


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "numa_ids": lambda text: cpu_list(text, "--numa-ids"),
    "numa_min": _numa_min,
    "strict": _strict,
}
