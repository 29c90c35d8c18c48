"""What a claim means under each grouping of devices: a case per cell of the table in docs/driver/grouping.md."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from driver.errors import RefusedError
from models import InfeasibleError
from tests.driver.claims.documents import Node, claim, cpuset, options, result
from tests.driver.claims.machines import EXTERNAL, FOUR_NODES, INDIVIDUAL, MACHINE, NUMA_NODE, SOCKET
from topologies import synthetic

TABLE = Path(__file__).resolve().parents[3] / "docs/driver/grouping.md"

SAID: dict[str, dict[str, Any]] = {
    "packed": {"allocationPolicy": "packed"},
    "distributed": {"allocationPolicy": "distributed"},
    "strict": {"allocationPolicy": "distributed", "strict": True},
}


@dataclass(frozen=True)
class Cell:
    """One cell. ``results``: CPUs by device; ``named``: a cpuset that the claim has too.

    Either ``shares`` (per request of the solver, CPUs on each NUMA node that it uses) and ``given`` come of it,
    with a word of each note, or it is ``refused``.
    """

    settings: dict[str, Any]
    results: dict[str, int]
    named: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, list[int]] = field(default_factory=dict)
    given: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""

    def claim(self, said: dict[str, Any]) -> dict[str, Any]:
        results = [result("r", device, str(cpus)) for device, cpus in self.results.items()]
        return claim(
            *results, configs=[options(**said, **self.more), *([cpuset(self.named)] if self.named else [])]
        )


ONE_NODE = "allocationPolicy: a device is one NUMA node here, within which distributed adds nothing"
CHOSEN = "allocationPolicy: each CPU is a device here and the scheduler chose them"
TWO_NODES = {"cpudevnuma000": 3, "cpudevnuma003": 5}
TWO_SHARES = {"r@cpudevnuma000": [3], "r@cpudevnuma003": [5]}
EACH = "of 2 devices, and these options hold on each by itself: allocationPolicy"

CELLS = {
    "machine-auto-packed": Cell(MACHINE, {"cpudevmachine": 8}, shares={"r": [8]}),
    "machine-auto-distributed": Cell(MACHINE, {"cpudevmachine": 12}, shares={"r": [6, 6]}),
    "machine-auto-strict": Cell(
        MACHINE, {"cpudevmachine": 16}, more={"numaMin": "all"}, shares={"r": [4, 4, 4, 4]}
    ),
    "machine-external-packed": Cell(EXTERNAL, {"cpudevmachine": 3}, named="1,5-6", given=(1, 5, 6)),
    "machine-external-distributed": Cell(
        EXTERNAL,
        {"cpudevmachine": 3},
        named="1,5-6",
        given=(1, 5, 6),
        notes=("count for nothing: allocationPolicy",),
    ),
    "machine-external-strict": Cell(
        EXTERNAL, {"cpudevmachine": 3}, named="1,5-6", refused="strict: cpuConfig.cpuset names the CPUs"
    ),
    "socket-packed": Cell(SOCKET, {"cpudevsocket001": 8}, shares={"r": [8]}),
    "socket-distributed": Cell(SOCKET, {"cpudevsocket001": 10}, shares={"r": [5, 5]}),
    "socket-strict": Cell(SOCKET, {"cpudevsocket001": 6}, more={"numaMin": 2}, shares={"r": [3, 3]}),
    "numanode-packed": Cell(NUMA_NODE, {"cpudevnuma002": 6}, shares={"r": [6]}),
    "numanode-distributed": Cell(NUMA_NODE, {"cpudevnuma002": 6}, shares={"r": [6]}, notes=(ONE_NODE,)),
    "numanode-strict": Cell(NUMA_NODE, {"cpudevnuma002": 6}, refused=ONE_NODE),
    "numanode-several-packed": Cell(NUMA_NODE, TWO_NODES, shares=TWO_SHARES),
    "numanode-several-distributed": Cell(NUMA_NODE, TWO_NODES, shares=TWO_SHARES, notes=(ONE_NODE, EACH)),
    "numanode-several-strict": Cell(NUMA_NODE, TWO_NODES, refused=ONE_NODE),
    "individual-packed": Cell(INDIVIDUAL, {"cpudev000": 1}, refused=CHOSEN),
    "individual-distributed": Cell(INDIVIDUAL, {"cpudev000": 1}, refused=CHOSEN),
    "individual-strict": Cell(INDIVIDUAL, {"cpudev000": 1}, refused=CHOSEN),
}


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if not cell.refused])
def test_a_claim_is_placed_as_its_cell_says(name: str) -> None:
    cell, said = CELLS[name], SAID[name.rpartition("-")[2]]
    node, document = Node(FOUR_NODES, **cell.settings), cell.claim(said)
    wish = node.wish(document)
    assert wish.set_aside == frozenset(cell.given)
    assert len(wish.notes) == len(cell.notes)
    for note, words in zip(wish.notes, cell.notes, strict=True):
        assert note.startswith("claim default/cpus")
        assert words in note
    assert (node.shares(document) if cell.shares else {}) == cell.shares


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.refused])
def test_what_cannot_be_meant_is_refused_as_its_cell_says(name: str) -> None:
    cell, said = CELLS[name], SAID[name.rpartition("-")[2]]
    with pytest.raises(RefusedError, match=re.escape(cell.refused)) as refused:
        Node(FOUR_NODES, **cell.settings).wish(cell.claim(said))
    assert refused.value.reason == "BadConfig"
    assert refused.value.message.startswith("claim default/cpus")
    assert "request r:" in refused.value.message


def test_the_table_in_the_documents_has_a_case_for_each_cell() -> None:
    cells = re.findall(r"\[`([a-z-]+)`\]", TABLE.read_text())
    assert sorted(cells) == sorted(CELLS)


@pytest.mark.parametrize(
    "machine",
    [
        "numa:1 core:16 cpu:2",
        "socket:2 numa:1 core:8 cpu:2",
        "socket:2 numa:2 core:4 cpu:2",
        "socket:2 numa:4 core:2 cpu:2",
    ],
)
def test_one_claim_unchanged_takes_equal_shares_of_machines_with_1_2_4_and_8_numa_nodes(machine: str) -> None:
    node = Node(synthetic.build(machine), **MACHINE)
    wanted = options(allocationPolicy="distributed", numaMin="all", fullCores=True, strict=True)
    nodes = len(node.topology.numa_nodes)
    assert node.shares(claim(result("r", "cpudevmachine", "16"), configs=[wanted])) == {"r": [16 // nodes] * nodes}


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_a_floor_that_a_machine_has_not_is_missed_and_no_reason_to_refuse(nodes: int) -> None:
    node = Node(synthetic.build(f"numa:{nodes} core:8 cpu:1"), **MACHINE)
    wanted = options(allocationPolicy="distributed", numaMin=4)
    parts = min(nodes, 4)
    assert node.shares(claim(result("r", "cpudevmachine", "8"), configs=[wanted])) == {"r": [8 // parts] * parts}


def test_what_strict_rules_out_is_infeasible_with_its_numbers() -> None:
    node = Node(FOUR_NODES, **MACHINE)
    wanted = options(numaMin=4, strict=["numaMin"])
    with pytest.raises(InfeasibleError, match="4 NUMA nodes"):
        node.shares(claim(result("r", "cpudevmachine", "3"), configs=[wanted]))


@pytest.mark.parametrize(
    ("key", "said"), [("fullCores", {"fullCores": False}), ("threads", {"threads": "spread"})]
)
def test_a_claim_cannot_split_cores_where_whole_ones_are_the_rule_of_the_node(
    key: str, said: dict[str, Any]
) -> None:
    node = Node(FOUR_NODES, groupBy="machine", fullCores=True)
    for source in ("FromClass", "FromClaim"):
        with pytest.raises(
            RefusedError, match=f"request r: {key}: whole cores are the rule of this node"
        ) as refused:
            node.wish(claim(result("r", "cpudevmachine", "4"), configs=[options(source, **said)]))
        assert refused.value.reason == "BadConfig"
    assert node.wish(claim(result("r", "cpudevmachine", "4"), configs=[options(fullCores=True)])).requests


def test_results_of_one_request_on_one_device_are_one_request_of_the_solver() -> None:
    shared = [result("r", "cpudevnuma001", "3", shareID=share) for share in ("a", "b")]
    document = claim(*shared, configs=[options(fullCores=True)])
    assert Node(FOUR_NODES).shares(document) == {"r": [6]}


def test_results_on_several_devices_are_solved_jointly() -> None:
    several = claim(
        result("a", "cpudevsocket000", "4"),
        result("a", "cpudevsocket001", "4"),
        result("b", "cpudevsocket000", "8"),
    )
    node = Node(FOUR_NODES, **SOCKET)
    assert [(each.name, each.cpus) for each in node.wish(several).requests] == [
        ("a@cpudevsocket000", 4),
        ("a@cpudevsocket001", 4),
        ("b", 8),
    ]
    assert node.shares(several) == {"a@cpudevsocket000": [4], "a@cpudevsocket001": [4], "b": [8]}


def test_a_strict_wish_of_the_class_for_a_policy_of_the_claim_is_refused_too() -> None:
    configs = [options("FromClass", strict=["allocationPolicy"]), options(allocationPolicy="distributed")]
    with pytest.raises(RefusedError, match="within which distributed adds nothing; leave out strict"):
        Node(FOUR_NODES).wish(claim(result("r", "cpudevnuma000", "4"), configs=configs))


def test_a_floor_within_one_numa_node_is_said_to_add_nothing_and_refused_if_strict() -> None:
    node, one = Node(FOUR_NODES), result("r", "cpudevnuma000", "4")
    (note,) = node.wish(claim(one, configs=[options(numaMin=2)])).notes
    assert "numaMin: a device is one NUMA node here, within which a floor adds nothing" in note
    with pytest.raises(RefusedError, match="numaMin: a device is one NUMA node here"):
        node.wish(claim(one, configs=[options(numaMin="all", strict=True)]))


@pytest.mark.parametrize("strict", [False, True])
def test_the_nodes_own_defaults_are_for_all_groupings_and_nothing_is_said_of_them(strict: bool) -> None:
    node = Node(FOUR_NODES, allocationPolicy="distributed", strict=strict)
    assert node.wish(claim(result("r", "cpudevnuma000", "4"))).notes == ()
    assert node.shares(claim(result("r", "cpudevnuma000", "4"))) == {"r": [4]}


def test_with_an_external_scheduler_a_claim_without_cpus_is_refused() -> None:
    with pytest.raises(RefusedError, match="a scheduler must name the CPUs"):
        Node(FOUR_NODES, **EXTERNAL).wish(claim(result("r", "cpudevmachine", "1")))


@pytest.mark.parametrize(
    "rule",
    [{"fullCores": True}, {"numaMax": 1}, {"numaIds": "0"}, {"coreType": "performance"}, {"strict": ["near"]}],
    ids=lambda rule: next(iter(rule)),
)
@pytest.mark.parametrize("settings", [MACHINE, EXTERNAL, SOCKET, NUMA_NODE], ids=str)
def test_rules_about_cpus_that_are_named_are_refused(settings: dict[str, Any], rule: dict[str, Any]) -> None:
    node = Node(FOUR_NODES, **settings)
    device = next(iter(node.devices)).name
    with pytest.raises(RefusedError, match=f"{next(iter(rule))}: cpuConfig.cpuset names the CPUs"):
        node.wish(claim(result("r", device, "2"), configs=[cpuset("2-3"), options(**rule)]))


def test_single_cpus_are_the_ones_that_the_scheduler_chose() -> None:
    node = Node(FOUR_NODES, **INDIVIDUAL, reservedCPUs="0")
    found = node.wish(claim(result("r", "cpudev000"), result("r", "cpudev001")))
    assert found.given == {"r": frozenset({1, 17})}
    assert found.requests == ()


def test_memory_may_be_bound_under_every_grouping() -> None:
    for settings in (MACHINE, SOCKET, NUMA_NODE, INDIVIDUAL):
        node = Node(FOUR_NODES, **settings)
        first = next(iter(node.devices)).name
        assert node.wish(claim(result("r", first, "1"), configs=[options(memory="bind")])).memory == "bind"
