import json

import jsonschema
import pytest

from models import Topology
from models.schema import PATH, topology_schema

SCHEMA = json.loads(PATH.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

DOCUMENT = {
    "apiVersion": "cpusat/v1",
    "kind": "Topology",
    "name": "1s2n-2c4t",
    "cpus": [
        {"cpu": 0, "core": 0, "socket": 0, "die": 0, "cluster": None, "numa": 0, "l3": 0, "core_type": "standard"},
        {"cpu": 1, "core": 1, "numa": 1},
        {"cpu": 2, "core": 0, "numa": 0, "die": 0, "l3": 0},
        {"cpu": 3, "core": 1, "numa": 1},
    ],
    "numa_nodes": [{"id": 0, "distances": {"0": 10, "1": 21}}, {"id": 1, "distances": {"0": 21, "1": 10}}],
    "devices": [{"name": "eth0", "pci": "0000:17:00.0", "pci_root": "pci0000:16", "numa": 0, "local_cpus": "0,2"}],
    "reserved": "0",
    "held": {"claim-a": "1,3"},
    "requests": [{"name": "cpus", "cpus": 1, "policy": "distributed", "numa_min": "all", "strict": ["policy"]}],
    "constraints": [{"match": "numa"}],
}


def test_the_published_schema_is_the_models() -> None:
    assert json.loads(topology_schema()) == SCHEMA, "renew it with: python -m models.schema"


def test_the_published_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_the_schema_allows_the_model_reads() -> None:
    VALIDATOR.validate(DOCUMENT)
    topology = Topology.model_validate(DOCUMENT)
    VALIDATOR.validate(json.loads(topology.to_json()))


@pytest.mark.parametrize(
    "change",
    [
        {"cpus": []},
        {"cpus": [{"cpu": 0}]},
        {"cpus": [{"cpu": -1, "core": 0}]},
        {"cpus": [{"cpu": 0, "core": 0, "core_type": "small"}]},
        {"numa_nodes": [{"id": 0, "distances": {"0": 256}}]},
        {"held": {"claim-a": [1, 3]}},
        {"kind": "Machine"},
        {"apiVersion": "cpusat/v2"},
        {"sockets": 2},
    ],
)
def test_what_the_schema_refuses_the_model_refuses_too(change: dict[str, object]) -> None:
    assert not VALIDATOR.is_valid(DOCUMENT | change)
    if "held" not in change:
        with pytest.raises(ValueError, match="validation error"):
            Topology.model_validate(DOCUMENT | change)


def test_defaults_in_the_schema_are_values_that_it_allows() -> None:
    defaults = {key: value["default"] for key, value in SCHEMA["properties"].items() if "default" in value}
    assert defaults["reserved"] == ""
    VALIDATOR.validate(DOCUMENT | defaults)
