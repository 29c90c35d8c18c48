import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import BadInputError, Topology
from topologies.shape import Shape
from topologies.synthetic import build, looks_synthetic


def rows(topology: Topology) -> list[tuple[int | None, ...]]:
    return [(cpu.cpu, cpu.core, cpu.l3, cpu.numa, cpu.socket) for cpu in topology.cpus]


def test_siblings_are_numbered_apart_as_linux_does_on_x86() -> None:
    topology = build("socket:2 numa:1 l3:2 core:1 cpu:2")
    assert topology.name == "2s2n-4c8t"
    assert rows(topology) == [
        (0, 0, 0, 0, 0),
        (1, 1, 1, 0, 0),
        (2, 2, 2, 1, 1),
        (3, 3, 3, 1, 1),
        (4, 0, 0, 0, 0),
        (5, 1, 1, 0, 0),
        (6, 2, 2, 1, 1),
        (7, 3, 3, 1, 1),
    ]


def test_compact_numbering_makes_siblings_adjacent() -> None:
    topology = build("numbering:compact socket:1 numa:2 core:1 cpu:2")
    assert rows(topology) == [(0, 0, None, 0, 0), (1, 0, None, 0, 0), (2, 1, None, 1, 0), (3, 1, None, 1, 0)]


def test_distances_tell_the_same_socket_from_another() -> None:
    nodes = build("socket:2 numa:2 core:1").numa_nodes
    assert [list(node.distances.values()) for node in nodes] == [
        [10, 12, 21, 21],
        [12, 10, 21, 21],
        [21, 21, 10, 12],
        [21, 21, 12, 10],
    ]


def test_an_l3_may_lie_over_numa_nodes_and_a_numa_node_over_sockets() -> None:
    over_numa = build("socket:1 l3:1 numa:2 core:1")
    assert [(cpu.l3, cpu.numa) for cpu in over_numa.cpus] == [(0, 0), (0, 1)]
    over_sockets = build("numa:1 socket:2 core:1")
    assert [(cpu.numa, cpu.socket) for cpu in over_sockets.cpus] == [(0, 0), (0, 1)]
    assert over_sockets.name == "2s1n-2c2t"


def test_levels_left_out_do_not_exist() -> None:
    topology = build("core:3")
    assert rows(topology) == [(0, 0, None, None, 0), (1, 1, None, None, 0), (2, 2, None, None, 0)]
    assert topology.numa_nodes == ()
    assert all(cpu.die is None for cpu in topology.cpus)
    assert Shape.of(build("socket:1 cpu:4")).cores == 4


@pytest.mark.parametrize(
    "text",
    [
        "package:2 numanode:2 l3:1 core:2 pu:2",
        "Pack:2 NUMA:2 L3Cache:1 Core:2 PU:2",
        " socket:2\tnuma:2 l3:1 core:2 cpu:2\n",
    ],
)
def test_hwlocs_words_mean_the_same_as_ours(text: str) -> None:
    assert build(text) == build("socket:2 numa:2 l3:1 core:2 cpu:2")


@pytest.mark.parametrize(
    ("text", "word", "reason"),
    [
        ("socket:2 foo:3 core:1", "foo:3", "unknown level foo; known are socket, die, numa, l3, core, cpu"),
        ("socket:2 sockets:2 core:1", "sockets:2", "unknown level"),
        ("socket:two core:1", "socket:two", "level:count"),
        ("socket core:1", "socket", "level:count"),
        ("socket:-1 core:1", "socket:-1", "level:count"),
        ("socket:٢ core:1", "socket:٢", "level:count"),
        ("core:0", "core:0", "at least 1"),
        ("core:2 pack:2 socket:3", "socket:3", "given twice"),
        ("cpu:2 core:2", "core", "a core does not lie inside a cpu"),
        ("die:2 socket:2 core:1", "socket", "a socket does not lie inside a die"),
        ("core:2 numa:2", "numa", "from the outermost in"),
        ("cpu:2 l3:2", "l3", "from the outermost in"),
        ("socket:2 numa:2", "numa:2", "no core:N or cpu:N"),
        ("", "", "no core:N or cpu:N"),
        ("numbering:odd core:1", "numbering:odd", "numbering:linux or numbering:compact"),
        ("numbering:linux core:1 numbering:linux", "numbering:linux", "given once"),
        ("socket:2 core:8192 cpu:2", "socket:2 core:8192 cpu:2", "32768 CPUs; at most 16384"),
        ("core:99999999999999999999", "core:99999999999999999999", "level:count"),
        ("socket:999999999 numa:999999999 core:999999999 cpu:999999999", "socket:999999999", "at most 16384"),
        ("socket:2 numa:200 core:1", "numa:200", "400 NUMA nodes; at most 256"),
    ],
)
def test_a_word_that_cannot_be_used_is_named(text: str, word: str, reason: str) -> None:
    with pytest.raises(BadInputError) as caught:
        build(text)
    assert word in caught.value.place
    assert reason in caught.value.reason
    assert caught.value.file == "synthetic description"


@pytest.mark.parametrize("text", ["socket:2 core:4", "sockets:2", "core:", " Core:x cpu", "foo:1 bar:2"])
def test_descriptions_are_recognised_even_when_they_are_wrong(text: str) -> None:
    assert looks_synthetic(text)


@pytest.mark.parametrize(
    "text",
    ["", "host", "-", "1s1n-4c4t-vm", "/sys", "./a:b/c", "a:b/c.json", '{"kind": "Topology"}', "<topology>"],
)
def test_paths_names_and_documents_are_no_descriptions(text: str) -> None:
    assert not looks_synthetic(text)


LEVELS = ("socket", "die", "numa", "l3", "core", "cpu")


@given(st.lists(st.none() | st.integers(1, 4), min_size=5, max_size=5), st.integers(1, 4), st.booleans())
def test_every_parent_has_as_many_children_as_asked(outer: list[int | None], cpus: int, compact: bool) -> None:
    counts = {level: count for level, count in zip(LEVELS, [*outer, cpus], strict=True) if count}
    text = " ".join(f"{level}:{count}" for level, count in counts.items())
    topology = build(text + " numbering:compact" * compact)
    assert [cpu.cpu for cpu in topology.cpus] == list(range(math.prod(counts.values())))
    size = len(topology.cpus)
    for level, count in counts.items():
        size //= count
        domains = Counter(getattr(cpu, level) for cpu in topology.cpus)
        assert set(domains.values()) == {size}
    step = 1 if compact else len({cpu.core for cpu in topology.cpus})
    by_core: dict[int, list[int]] = {}
    for cpu in topology.cpus:
        by_core.setdefault(cpu.core, []).append(cpu.cpu)
    assert all(b - a == step for found in by_core.values() for a, b in pairwise(found))
    assert build(text) == Topology.model_validate_json(build(text).to_json())
