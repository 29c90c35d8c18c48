"""The published JSON Schema of topology documents; ``python -m models.schema`` writes it anew."""

import json
from pathlib import Path

from models.topology import Topology

PATH = Path(__file__).with_name("topology.schema.json")


def topology_schema() -> str:
    """The schema as text. It says what keys and values there are; rules between them are checked on reading."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | Topology.model_json_schema(by_alias=True), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(topology_schema(), encoding="utf-8")
