"""YAML as configuration uses it: one document of mappings, lists and plain values, read within bounds."""

import re
from typing import Any

import yaml

from models import BadInputError

MAX_EVENTS, MAX_DEPTH = 50_000, 32
"""Several times what the largest claim has, and little enough to be refused within a second."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]{1,18}", "-+0123456789"),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,5})?", "-+.0123456789"),
}
"""The plain values of YAML 1.2's core schema: no dates, no sexagesimal or octal numbers, no merge keys."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML declares it

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice."""
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) < len(node.value):
            raise BadInputError("a key is given twice in one mapping", place=_place(node.start_mark))
        return found

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Decimal, leading zeros or not."""
        return int(node.value)


_Loader.add_constructor(f"{_TAG}int", _Loader.construct_yaml_int)
for _name, (_pattern, _first) in _PLAIN.items():
    _starts = [*_first, ""] if _name == "null" else list(_first)
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _starts)


def parse_yaml(text: str) -> Any:  # noqa: ANN401 - YAML is anything
    """The YAML value; ``BadInputError`` with line and column.

    Refused: aliases (a few lines of them expand to gigabytes), tags, more than one document, deep nesting, and
    keys given twice.
    """
    try:
        _check_events(text)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        reason = error.problem or error.context or "cannot be read"
        raise BadInputError(f"is not valid YAML: {reason}", place=_place(error.problem_mark)) from None
    except yaml.YAMLError as error:
        raise BadInputError(f"is not valid YAML: {str(error).splitlines()[0]}") from None


def _check_events(text: str) -> None:
    depth = documents = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        refusals = {
            "aliases are not read; write the value out": isinstance(event, yaml.AliasEvent),
            "tags are not read; leave it out": getattr(event, "tag", None) is not None,
            "is nested too deeply": depth > MAX_DEPTH,
            "holds too many values for a claim": count > MAX_EVENTS,
            "holds more than one YAML document; give one": documents > 1,
        }
        for reason, applies in refusals.items():
            if applies:
                raise BadInputError(reason, place=_place(event.start_mark))


def _place(mark: Any) -> str:  # noqa: ANN401 - PyYAML's two kinds of marks
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
