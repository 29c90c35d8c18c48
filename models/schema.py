"""The published JSON Schema of topology documents; ``python -m models.schema`` writes it anew."""

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from models.cpuset import format_cpuset
from models.topology import Topology

PATH = Path(__file__).with_name("topology.schema.json")


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - the signature is pydantic's
        return format_cpuset(dft) if isinstance(dft, frozenset) else super().encode_default(dft)


def topology_schema() -> str:
    """The schema as text. It says what keys and values there are; rules between them are checked on reading."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = Topology.model_json_schema(by_alias=True, schema_generator=_Generator)
    return json.dumps(dialect | schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(topology_schema(), encoding="utf-8")
