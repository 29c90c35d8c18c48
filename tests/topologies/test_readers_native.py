"""The topology document as a file."""

import json

import pytest

from models import BadInputError
from tests.topologies.helpers import short
from topologies.load import read_text

DOCUMENT = {
    "apiVersion": "cpusat/v1",
    "kind": "Topology",
    "name": "small",
    "cpus": [{"cpu": 0, "core": 0, "numa": 0}, {"cpu": 1, "core": 1, "numa": 0}],
    "numa_nodes": [{"id": 0}],
    "reserved": "0",
}


def test_a_document_is_read_and_written_back():
    topology = read_text(json.dumps(DOCUMENT), name="file")
    assert topology.name == "small"
    assert read_text(topology.to_json()) == topology


def test_a_document_without_a_name_takes_that_of_its_file():
    document = {key: value for key, value in DOCUMENT.items() if key != "name"}
    assert read_text(json.dumps(document), name="node-7").name == "node-7"


def test_a_document_that_has_cpus_alone_is_not_taken_for_lscpu():
    assert [cpu.core for cpu in read_text('{"cpus": [{"cpu": 3, "core": 7}]}').cpus] == [7]


CPU0 = {"cpu": 0, "core": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(DOCUMENT | {"sockets": 2}), "sockets: unknown key"),
        (json.dumps(DOCUMENT | {"cpus": [CPU0 | {"nuam": 0}]}), "cpus.0.nuam: unknown key"),
        (json.dumps(DOCUMENT | {"cpus": []}), "cpus: Tuple should have at least 1 item"),
        (json.dumps(DOCUMENT | {"cpus": [CPU0, CPU0]}), "CPU 0 is given twice"),
        (json.dumps(DOCUMENT | {"cpus": [{"cpu": "0", "core": 0}]}), "cpus.0.cpu: Input should be a valid"),
        (json.dumps(DOCUMENT | {"cpus": [{"cpu": 10**30, "core": 0}]}), "cpus.0.cpu: Input should be less than"),
        (json.dumps(DOCUMENT | {"kind": "ResourceSlice"}), "kind: Input should be 'Topology'"),
        (json.dumps(DOCUMENT | {"reserved": "7"}), "CPUs 7 are reserved but not online"),
        (json.dumps(DOCUMENT)[:-3], "line 1, column"),
        ('{"kind": "Topology",\n "kind": "Topology"}', "key 'kind' is given twice in one object"),
        ('{"cpus": ' + "9" * 5000 + "}", "JSON has a number that is too long"),
        (
            json.dumps(DOCUMENT | {"numa_nodes": [{"id": 0, "distances": {"0": 10, "00": 20}}]}),
            "numa_nodes.0.distances: '00' is not a NUMA node id in plain decimal, such as 0 or 12",
        ),
        (json.dumps(DOCUMENT | {"numa_nodes": [{"id": 0, "distances": {"+0": 9}}]}), "numa_nodes.0.distances: '"),
        (json.dumps(DOCUMENT | {"numa_nodes": [{"id": 0, "distances": {"²": 9}}]}), "numa_nodes.0.distances: '²'"),
        (json.dumps(DOCUMENT | {"numa_nodes": [{"id": 0, "distances": [10]}]}), "numa_nodes.0.distances: Input"),
        (json.dumps(DOCUMENT | {"numa_nodes": 7}), "numa_nodes: Input should be a valid tuple"),
        ("[" * 100_000, "JSON is nested too deeply"),
        ('{"a":' * 100_000, "JSON is nested too deeply"),
        ('{"cpus": [' + "[]," * 70_000 + "[]]}", "cpus: has 70001 entries, more than 65536"),
        ("[]", "is JSON, but neither a topology document"),
        ('{"a": 1}', "is JSON, but neither a topology document"),
        ('{"cpus": ["' + "x" * 17 * 2**20 + '"]}', "is text of more than 16 MB, which no machine needs"),
        ('{"cpus": [' + "[]," * 1_000_001 + "[]]}", "JSON holds more than 1000000 values"),
        ("{" + ",".join(f'"{i}":0' for i in range(70_000)) + "}", "an object in the JSON has more than 65536"),
    ],
    ids=short,
)  # fmt: skip
def test_a_broken_document_is_one_clear_error(text: str, message: str):
    with pytest.raises(BadInputError) as error:
        read_text(text)
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 300
