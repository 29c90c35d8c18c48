"""What a claim means under each grouping of devices: a case per cell of the table in docs/driver/grouping.md."""

from typing import Any

import pytest

from driver.errors import RefusedError
from models import parse_cpuset
from solver import solve
from tests.driver.claims.documents import Node, claim, cpuset, options, result
from topologies import synthetic

FOUR_NODES = synthetic.build("socket:2 numa:2 core:4 cpu:2")
"""32 CPUs: NUMA node n has cores 4n to 4n + 3."""

MACHINE = {"groupBy": "machine"}
SOCKET = {"groupBy": "socket"}
NUMA_NODE: dict[str, str] = {}
INDIVIDUAL = {"cpuDeviceMode": "individual"}
EXTERNAL = {"groupBy": "machine", "machineAllocation": "external"}


def spans(node: Node, document: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """Per request of the solver, how many CPUs it takes of each NUMA node that it uses."""
    placed = solve(node.topology, node.wish(document).requests, free=node.node.allocatable).require()
    numa = {cpu.cpu: cpu.numa for cpu in node.topology.cpus}
    return [
        (given.request, [n for each in range(8) if (n := sum(numa[cpu] == each for cpu in given.cpuset))])
        for given in placed
    ]


@pytest.mark.parametrize(
    ("settings", "results", "said", "shares"),
    [
        pytest.param(MACHINE, [result("r", "cpudevmachine", "8")], {}, [("r", [8])], id="machine-packed"),
        pytest.param(
            MACHINE,
            [result("r", "cpudevmachine", "12")],
            {"allocationPolicy": "distributed"},
            [("r", [6, 6])],
            id="machine-distributed",
        ),
        pytest.param(
            MACHINE,
            [result("r", "cpudevmachine", "8")],
            {"allocationPolicy": "distributed", "numaMin": "all"},
            [("r", [2, 2, 2, 2])],
            id="machine-distributed-over-all",
        ),
        pytest.param(SOCKET, [result("r", "cpudevsocket001", "8")], {}, [("r", [8])], id="socket-packed"),
        pytest.param(
            SOCKET,
            [result("r", "cpudevsocket001", "10")],
            {"allocationPolicy": "distributed", "strict": True},
            [("r", [5, 5])],
            id="socket-distributed-strict",
        ),
        pytest.param(NUMA_NODE, [result("r", "cpudevnuma002", "6")], {}, [("r", [6])], id="numanode-packed"),
        pytest.param(
            NUMA_NODE,
            [result("r", "cpudevnuma002", "6")],
            {"allocationPolicy": "distributed"},
            [("r", [6])],
            id="numanode-distributed",
        ),
        pytest.param(
            NUMA_NODE,
            [result("r", "cpudevnuma000", "3"), result("r", "cpudevnuma003", "3")],
            {},
            [("r@cpudevnuma000", [3]), ("r@cpudevnuma003", [3])],
            id="numanode-several-results",
        ),
        pytest.param(
            NUMA_NODE,
            [result("r", "cpudevnuma001", "2", shareID="a"), result("r", "cpudevnuma001", "2", shareID="b")],
            {"fullCores": True},
            [("r", [4])],
            id="numanode-several-shares-of-one-device",
        ),
    ],
)
def test_a_claim_is_placed_as_its_grouping_says(
    settings: dict[str, Any],
    results: list[dict[str, Any]],
    said: dict[str, Any],
    shares: list[tuple[str, list[int]]],
) -> None:
    node = Node(FOUR_NODES, **settings)
    assert spans(node, claim(*results, configs=[options(**said)])) == shares


@pytest.mark.parametrize(
    ("settings", "device", "document", "says"),
    [
        pytest.param(
            NUMA_NODE,
            "cpudevnuma000",
            options(allocationPolicy="distributed", strict=True),
            "within which distributed adds nothing",
            id="numanode-distributed-strict",
        ),
        pytest.param(
            NUMA_NODE,
            "cpudevnuma000",
            options(allocationPolicy="distributed", strict=["allocationPolicy"]),
            "allocationPolicy: a device is one NUMA node here",
            id="numanode-distributed-strict-by-name",
        ),
        pytest.param(
            INDIVIDUAL,
            "cpudev000",
            options(allocationPolicy="packed"),
            "allocationPolicy: each CPU is a device here and the scheduler chose them",
            id="individual-packed",
        ),
        pytest.param(
            INDIVIDUAL,
            "cpudev000",
            options(source="FromClass", allocationPolicy="distributed"),
            "the scheduler chose them",
            id="individual-distributed",
        ),
        pytest.param(
            EXTERNAL,
            "cpudevmachine",
            options(),
            "a scheduler must name the CPUs",
            id="machine-external-without-cpus",
        ),
    ],
)
def test_what_a_grouping_cannot_mean_is_refused_with_the_reason(
    settings: dict[str, Any], device: str, document: dict[str, Any], says: str
) -> None:
    node = Node(FOUR_NODES, **settings)
    with pytest.raises(RefusedError, match=says) as refused:
        node.wish(claim(result("r", device, "1"), configs=[document]))
    assert refused.value.reason == "BadConfig"
    assert "claim default/cpus" in refused.value.message
    assert "request r" in refused.value.message


def test_distributed_within_one_numa_node_is_said_to_add_nothing() -> None:
    notes = (
        Node(FOUR_NODES)
        .wish(claim(result("r", "cpudevnuma000", "4"), configs=[options(allocationPolicy="distributed")]))
        .notes
    )
    assert len(notes) == 1
    assert "within which distributed adds nothing" in notes[0]


@pytest.mark.parametrize("settings", [EXTERNAL, MACHINE], ids=["machine-external", "machine-auto-given"])
def test_cpus_that_a_scheduler_names_are_taken_as_they_are(settings: dict[str, Any]) -> None:
    found = Node(FOUR_NODES, **settings).wish(claim(result("r", "cpudevmachine", "3"), configs=[cpuset("1,5-6")]))
    assert found.given == {"r": frozenset({1, 5, 6})}
    assert found.requests == ()


def test_single_cpus_are_the_ones_that_the_scheduler_chose() -> None:
    node = Node(FOUR_NODES, **INDIVIDUAL, reservedCPUs="0")
    found = node.wish(claim(result("r", "cpudev000"), result("r", "cpudev001")))
    assert found.given == {"r": node.devices.cpus("cpudev000") | node.devices.cpus("cpudev001")}
    assert found.requests == ()


@pytest.mark.parametrize(
    "name",
    [
        "numa:1 core:16 cpu:2",
        "socket:2 numa:1 core:8 cpu:2",
        "socket:2 numa:2 core:4 cpu:2",
        "socket:2 numa:4 core:2 cpu:2",
    ],
)
def test_one_claim_unchanged_fits_machines_with_1_2_4_and_8_numa_nodes(name: str) -> None:
    node = Node(synthetic.build(name), **MACHINE)
    document = claim(
        result("r", "cpudevmachine", "16"),
        configs=[options(allocationPolicy="distributed", numaMin="all", fullCores=True)],
    )
    ((_, shares),) = spans(node, document)
    nodes = max(1, len(node.topology.numa_nodes))
    assert shares == [16 // nodes] * nodes


def test_cpus_that_are_given_are_set_aside_before_the_rest() -> None:
    found = Node(FOUR_NODES, **MACHINE).wish(
        claim(result("a", "cpudevmachine", "2"), result("b", "cpudevmachine", "4"), configs=[cpuset("3-4", ["a"])])
    )
    assert found.given == {"a": frozenset({3, 4})}
    assert [(request.name, request.cpus) for request in found.requests] == [("b", 4)]


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ([cpuset("1-2")], "names 2 CPUs, and 3 are consumed"),
        ([cpuset("30-32")], "CPUs 32 are not online"),
        ([cpuset("0-2")], "CPUs 0 are reserved"),
        ([cpuset("x")], "is not a CPU number"),
        ([cpuset("")], "is no CPU list"),
        ([cpuset(7)], "is no CPU list"),
        ([cpuset("1-3"), cpuset("1-3")], "more than one config"),
        ([cpuset("1-" + "9" * 10)], "above the highest number"),
    ],
)
def test_cpus_that_cannot_be_given_are_refused(configs: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(RefusedError, match=f"cpuConfig.cpuset: .*{says}"):
        Node(FOUR_NODES, **MACHINE, reservedCPUs="0").wish(
            claim(result("r", "cpudevmachine", "3"), configs=configs)
        )


def test_given_cpus_must_lie_in_the_devices_that_were_allocated() -> None:
    results = result("r", "cpudevnuma000", "1"), result("r", "cpudevnuma001", "1")
    inside = Node(FOUR_NODES).node.online
    node = Node(FOUR_NODES)
    first, second = (min(node.devices.cpus(f"cpudevnuma00{i}") or inside) for i in (0, 1))
    assert node.wish(claim(*results, configs=[cpuset(f"{first},{second}")])).set_aside == {first, second}
    with pytest.raises(RefusedError, match="CPUs of device cpudevnuma000, of which 1 are consumed"):
        node.wish(claim(*results, configs=[cpuset("0-1")]))


def test_two_requests_cannot_be_given_the_same_cpu() -> None:
    with pytest.raises(RefusedError, match="CPU 2 is given to request a too"):
        Node(FOUR_NODES, **MACHINE).wish(
            claim(
                result("a", "cpudevmachine", "2"),
                result("b", "cpudevmachine", "2"),
                configs=[cpuset("1-2", ["a"]), cpuset("2-3", ["b"])],
            )
        )


def test_unknown_keys_beside_a_cpuset_only_warn() -> None:
    found = Node(FOUR_NODES, **MACHINE).wish(
        claim(result("r", "cpudevmachine", "1"), configs=[cpuset("4", colour="red")])
    )
    assert found.given == {"r": frozenset({4})}
    assert any("colour: unknown key, ignored" in note for note in found.notes)


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "none of its devices are of this driver"),
        ([result("r", "cpudevnuma009", "1")], "this node has no device 'cpudevnuma009'"),
        ([result("r", "cpudevnuma000", "9")], "9 CPUs of device cpudevnuma000, which has 8"),
    ],
)
def test_devices_that_are_not_ours_are_refused(results: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        Node(FOUR_NODES).wish(claim(*results))


def merged(*configs: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    (request,) = (
        Node(FOUR_NODES, **MACHINE, **defaults)
        .wish(claim(result("r/sub", "cpudevmachine", "4"), configs=configs))
        .requests
    )
    return request.model_dump(exclude_defaults=True, exclude={"name", "cpus", "within"})


def test_the_claim_comes_over_its_class_and_the_class_over_the_defaults_field_by_field() -> None:
    assert merged(
        options("FromClaim", numaMin=2),
        options("FromClass", numaMin=3, preferL3=True),
        fit="loose",
        numaMin=4,
        allocationPolicy="distributed",
    ) == {"numa_min": 2, "prefer_l3": True, "fit": "loose", "policy": "distributed"}


def test_a_config_applies_to_a_request_by_its_full_or_base_name() -> None:
    named = [
        options(requests=["r"], fit="loose"),
        options(requests=["r/sub"], preferL3=True),
        options(requests=["x"], numaMax=1),
    ]
    assert merged(*named) == {"fit": "loose", "prefer_l3": True}


def test_two_values_of_one_key_within_one_source_are_an_error_and_equal_ones_are_not() -> None:
    assert merged(options(numaMin=2), options(numaMin=2)) == {"numa_min": 2}
    with pytest.raises(
        RefusedError, match=r"request r/sub: numaMin: two configs of one source say different things"
    ):
        merged(options(numaMin=2), options(numaMin=3))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"numaMim": 2}, "numaMim: unknown key"),
        ({"allocationPolicy": "spread"}, "allocationPolicy: Input should be 'packed' or 'distributed'"),
        ({"numaMin": 0}, "numaMin"),
        ({"cpus": 4}, "cpus: unknown key"),
        ({"within": "0-3"}, "within: unknown key"),
        ({"threads": "spread", "fullCores": True}, "contradict each other"),
        ({"kind": "Other"}, "kind: 'Other' is not CpuClaimConfig"),
        ({"apiVersion": "dra.cpu/v9"}, "apiVersion: 'dra.cpu/v9' is neither"),
        ({"numaIds": "0-99999999999"}, "numaIds"),
    ],
)
def test_a_wrong_config_is_an_error_that_names_claim_request_and_key(said: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError) as refused:
        merged(options(**said))
    assert refused.value.reason == "BadConfig"
    assert "claim default/cpus" in refused.value.message
    assert "request r/sub" in refused.value.message
    assert says in refused.value.message


def test_memory_is_bound_if_one_of_the_requests_wants_it() -> None:
    node = Node(FOUR_NODES, **MACHINE)
    results = result("a", "cpudevmachine", "1"), result("b", "cpudevmachine", "1")
    assert node.wish(claim(*results)).memory == "none"
    assert node.wish(claim(*results, configs=[options(requests=["b"], memory="bind")])).memory == "bind"


def test_online_cpus_are_what_devices_stand_for() -> None:
    assert Node(FOUR_NODES, **MACHINE).devices.cpus("cpudevmachine") == parse_cpuset("0-31")
