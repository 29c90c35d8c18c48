"""Whatever a claim says, it is read or refused: nothing else ever comes out, and nothing is expanded unbounded."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.errors import RefusedError
from tests.driver.claims.documents import Node, claim, config, cpuset, options, result
from tests.driver.claims.machines import EXTERNAL, FOUR_NODES, INDIVIDUAL, MACHINE, NUMA_NODE, SOCKET

Step = str | int

WORDS = st.sampled_from(
    [
        *(
            "dra.cpu",
            "dra.cpu/v1",
            "v1alpha1",
            "CpuClaimConfig",
            "distributed",
            "all",
            "0-3",
            "r",
            "r/s",
            "4",
            "1Ki",
        ),
        *(
            "allocationPolicy",
            "numaMin",
            "strict",
            "cpuConfig",
            "cpuset",
            "near",
            "numaIds",
            "\ud800",
            "\x1b[2J\n",
        ),
    ]
)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | WORDS | st.just(10**4000)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)
NODES = [Node(FOUR_NODES, **each) for each in (MACHINE, EXTERNAL, SOCKET, NUMA_NODE, INDIVIDUAL)]
DOCUMENT = claim(
    result("r/s", "cpudevmachine", "4", shareID="s"),
    result("b", "cpudevnuma000", "2"),
    configs=[options(numaMin=2, strict=["numaMin"], numaIds="0-1"), cpuset("1-2", ["b"])],
)


def places(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Paths to everything in a document."""
    if path:
        yield path
    steps = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield from places(value[step], (*path, step))


def spoilt(path: tuple[Step, ...], value: Any) -> dict[str, Any]:
    document: Any = deepcopy(DOCUMENT)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return document


def outcome(node: Node, document: Any) -> str:
    """``wish``, or why it is refused, in a message of one printable line that is not endless."""
    said = RefusedError("Defect", "wish")
    try:
        node.wish(document)
    except RefusedError as error:
        said = error
    assert len(said.message) < 1000
    assert said.message.isprintable()
    return said.reason if said.reason != "Defect" else said.message


@given(st.sampled_from(list(places(DOCUMENT))), JSON, st.sampled_from(NODES))
@settings(max_examples=600)
def test_a_claim_with_anything_anywhere_is_read_or_refused(path: tuple[Step, ...], value: Any, node: Node) -> None:
    assert outcome(node, spoilt(path, value)) in {"wish", "BadClaim", "BadConfig", "ClaimGone", "AdminAccess"}


@given(st.dictionaries(st.sampled_from(["allocationPolicy", "numaMin", "numaIds", "strict", "x"]) | WORDS, JSON))
@settings(max_examples=200)
def test_a_config_with_anything_in_it_is_read_or_refused(said: dict[str, Any]) -> None:
    for document in (options(**said), cpuset("4", **said), config({**said, "apiVersion": "v1alpha1"})):
        found = outcome(NODES[0], claim(result("r", "cpudevmachine", "1"), configs=[document]))
        assert found in {"wish", "BadClaim", "BadConfig"}


@given(JSON)
@settings(max_examples=100)
def test_anything_in_place_of_a_claim_is_refused(document: Any) -> None:
    assert outcome(NODES[0], document) == "BadClaim"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("results",), [result("r", "cpudevmachine", "1")] * 33, "at most 32 items"),
        (("results",), [result("r", "cpudevmachine", "1")] * 100_000, "at most 32 items"),
        (("results",), [{"driver": "dra.cpu"}] * 100_000, "request: Field required"),
        (("config",), [options()] * 65, "at most 64 items"),
        (("config",), [options(requests=["r"] * 33)], "at most 32 items"),
        (("config",), [options(**{f"k{i}": i for i in range(1000)})], "k0: unknown key"),
        (("config",), [options(**{f"k{i}": i for i in range(100_000)})], "a config of 1.* characters"),
        (("config",), [options(strict=["x"] * 1_000_000)], "characters; at most 65536 are read"),
        (("config",), [options(numaIds="0-65535," * 10_000)], "characters; at most 65536 are read"),
        (("config",), [options(numaIds="0-65535," * 100)], "repeats the same CPUs too often"),
        (("config",), [config(nested(100_000))], "nested too deeply"),
        (("config",), [options(near=nested(100_000))], "nested too deeply"),
    ],
    ids=range(12),
)
def test_sizes_and_depths_are_bounded(path: tuple[str, ...], value: Any, says: str) -> None:
    document = claim(result("r", "cpudevmachine", "1"))
    document["status"]["allocation"]["devices"][path[-1]] = value
    with pytest.raises(RefusedError, match=says) as refused:
        NODES[0].wish(document)
    assert len(refused.value.message) < 1000


def test_what_is_deep_where_nothing_is_read_does_not_matter() -> None:
    document = claim(result("r", "cpudevmachine", "1"))
    document["spec"] = nested(100_000)
    document["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"]["x"] = nested(100_000)
    assert outcome(NODES[0], document) == "wish"


def test_a_claim_as_large_as_the_api_server_allows_is_read() -> None:
    results = [result(f"r{i}", "cpudevmachine", "1") for i in range(32)]
    padded = "0-3," + "1," * 4800 + "2"
    configs = [config({"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": padded}}, requests=["r0"])]
    configs += [options(requests=[f"r{i}"], near="0," * 126 + "0") for i in range(1, 32)]
    document = claim(*results, configs=configs)
    assert len(json.dumps(configs[0])) < 10_240
    assert outcome(NODES[0], document) == "BadConfig"
    configs[0] = cpuset("4", ["r0"])
    assert outcome(NODES[0], claim(*results, configs=configs)) == "wish"
