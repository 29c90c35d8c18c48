"""CPUs that are named by number: ``v1alpha1`` configs of dra-driver-cpu, and devices that are single CPUs."""

from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

import cpusat.cli
from driver.errors import RefusedError
from models import parse_cpuset
from tests.driver.claims.documents import Node, claim, cpuset, options, result
from tests.driver.claims.machines import EXTERNAL, FOUR_NODES, INDIVIDUAL, MACHINE, SOCKET


@pytest.mark.parametrize("settings", [EXTERNAL, MACHINE], ids=["external", "auto"])
def test_cpus_that_a_scheduler_names_are_taken_as_they_are(settings: dict[str, Any]) -> None:
    found = Node(FOUR_NODES, **settings).wish(claim(result("r", "cpudevmachine", "3"), configs=[cpuset("1,5-6")]))
    assert found.given == {"r": frozenset({1, 5, 6})}
    assert (found.requests, found.notes) == ((), ())


def test_cpus_that_are_given_are_set_aside_before_the_rest_is_placed() -> None:
    node = Node(FOUR_NODES, **MACHINE)
    document = claim(
        result("a", "cpudevmachine", "2"), result("b", "cpudevmachine", "8"), configs=[cpuset("3-4", ["a"])]
    )
    assert node.wish(document).given == {"a": frozenset({3, 4})}
    assert [(request.name, request.cpus) for request in node.wish(document).requests] == [("b", 8)]
    assert node.shares(document) == {"b": [8]}


def test_a_cpuset_applies_to_an_alternative_by_the_name_of_its_list() -> None:
    found = Node(FOUR_NODES, **MACHINE).wish(
        claim(result("a/large", "cpudevmachine", "2"), configs=[cpuset("3-4", ["a"])])
    )
    assert found.given == {"a/large": frozenset({3, 4})}


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ([cpuset("1-2")], "names 2 CPUs, and 3 are consumed"),
        ([cpuset("30-32")], "CPUs 32 are not online"),
        ([cpuset("0-2")], "CPUs 0 are reserved"),
        ([cpuset("x")], "'x' is not a CPU number"),
        ([cpuset("")], "is no CPU list"),
        ([cpuset(7)], "is no CPU list"),
        ([cpuset(None)], "is no CPU list"),
        ([cpuset("1," * 6000)], "is no CPU list"),
        ([cpuset("0-65535," * 100)], "repeats the same CPUs too often"),
        ([cpuset("1-" + "9" * 10)], "above the highest number"),
        ([cpuset("1-3"), cpuset("1-3")], "more than one config"),
        ([cpuset("1-3"), cpuset("1-3", ["r"])], "more than one config"),
        ([{**cpuset("1-3"), "source": "FromClass"}], "in claims only, not in a DeviceClass"),
    ],
    ids=range(13),
)
def test_cpus_that_cannot_be_given_are_refused(configs: list[dict[str, Any]], says: str) -> None:
    node = Node(FOUR_NODES, **MACHINE, reservedCPUs="0")
    with pytest.raises(RefusedError, match=f"request r: cpuConfig.cpuset: .*{says}") as refused:
        node.wish(claim(result("r", "cpudevmachine", "3"), configs=configs))
    assert refused.value.reason == "BadConfig"


def test_a_config_without_cpus_is_refused() -> None:
    empty = {"source": "FromClaim", "opaque": {"driver": "dra.cpu", "parameters": {"apiVersion": "v1alpha1"}}}
    with pytest.raises(RefusedError, match=r"cpuConfig\.cpuset: is no CPU list such as 2-5"):
        Node(FOUR_NODES, **MACHINE).wish(claim(result("r", "cpudevmachine", "3"), configs=[empty]))


def test_given_cpus_must_lie_in_the_devices_that_were_allocated() -> None:
    node = Node(FOUR_NODES)
    results = result("r", "cpudevnuma000", "1"), result("r", "cpudevnuma001", "1")
    assert node.wish(claim(*results, configs=[cpuset("1,5")])).set_aside == {1, 5}
    with pytest.raises(RefusedError, match="names 2 CPUs of device cpudevnuma000, of which 1 are consumed"):
        node.wish(claim(*results, configs=[cpuset("0-1")]))


def test_given_cpus_are_read_in_socket_grouping_too() -> None:
    found = Node(FOUR_NODES, **SOCKET).wish(claim(result("r", "cpudevsocket001", "2"), configs=[cpuset("8,24")]))
    assert found.set_aside == {8, 24}


def test_cpus_that_split_a_core_are_refused_where_whole_cores_are_the_rule_of_the_node() -> None:
    node = Node(FOUR_NODES, groupBy="machine", fullCores=True)
    consumed = result("r", "cpudevmachine", "2")
    assert node.wish(claim(consumed, configs=[cpuset("3,19")])).given == {"r": {3, 19}}
    with pytest.raises(RefusedError, match="CPUs 3-4 are parts of cores"):
        node.wish(claim(consumed, configs=[cpuset("3-4")]))


@pytest.mark.parametrize("requests", [(["a"], ["b"]), (None, None)], ids=["by name", "for all"])
def test_two_requests_cannot_be_given_the_same_cpu(requests: Any) -> None:
    configs = {str(names): cpuset("1-2", names) for names in requests}.values()
    results = result("a", "cpudevmachine", "2"), result("b", "cpudevmachine", "2")
    with pytest.raises(RefusedError, match=r"request b: cpuConfig\.cpuset: CPU 1 is given to request a too"):
        Node(FOUR_NODES, **MACHINE).wish(claim(*results, configs=configs))


def test_a_cpuset_is_never_merged_with_one_of_the_class() -> None:
    configs = [options("FromClass", preferL3=True), cpuset("1-2")]
    found = Node(FOUR_NODES, **MACHINE).wish(claim(result("r", "cpudevmachine", "2"), configs=configs))
    assert found.set_aside == {1, 2}
    assert "these options count for nothing: preferL3" in found.notes[0]


def test_single_cpus_may_be_named_if_they_are_those_that_were_chosen() -> None:
    node = Node(FOUR_NODES, **INDIVIDUAL, reservedCPUs="0")
    chosen = result("r", "cpudev000"), result("r", "cpudev001")
    assert node.wish(claim(*chosen, configs=[cpuset("1,17")])).set_aside == {1, 17}
    with pytest.raises(RefusedError, match=r"cpuConfig\.cpuset: the scheduler chose CPUs 1,17, not these"):
        node.wish(claim(*chosen, configs=[cpuset("1-2")]))


def test_one_single_cpu_for_two_requests_is_refused() -> None:
    with pytest.raises(RefusedError, match="CPU 0 is given to request a too"):
        Node(FOUR_NODES, **INDIVIDUAL).wish(claim(result("a", "cpudev000"), result("b", "cpudev000")))


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "none of its devices are of this driver"),
        ([result("r", "cpudevnuma009", "1")], "request r: this node has no device 'cpudevnuma009'"),
        ([result("r", "cpudevnuma000", "9")], "request r: 9 CPUs of device cpudevnuma000, which has 8"),
        ([result("r", "cpudevnuma000", "5")] * 2, "request r: 10 CPUs of device cpudevnuma000, which has 8"),
    ],
)
def test_devices_that_cannot_be_ours_are_refused(results: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        Node(FOUR_NODES).wish(claim(*results))
    assert refused.value.reason == "BadClaim"


def test_what_solve_prints_as_claim_config_is_a_claims_and_gives_those_cpus() -> None:
    arguments = ["--topology", "socket:2 numa:2 core:4 cpu:2", "--cpus", "6", "--policy", "distributed"]
    options = ["solve", *arguments, "--engine", "greedy", "--output"]
    printed, cpus = (
        CliRunner().invoke(cpusat.cli.main, [*options, form]).stdout for form in ("claim-config", "cpuset")
    )
    (entry,) = yaml.safe_load(printed)["config"]
    document = claim(result("cpus", "cpudevmachine", "6"), configs=[{"source": "FromClaim", **entry}])
    document["spec"] = {"devices": {"requests": [{"name": "cpus", "exactly": {"deviceClassName": "dra.cpu"}}]}}
    document["spec"]["devices"]["config"] = [entry]
    kubernetes_validate.validate(document, "1.36", strict=True)
    for settings in (EXTERNAL, MACHINE):
        assert Node(FOUR_NODES, **settings).wish(document).given == {"cpus": parse_cpuset(cpus.strip())}
