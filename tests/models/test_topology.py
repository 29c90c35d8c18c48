"""The topology document: what is no machine is refused, naming place and reason; what is one is read."""

import pytest
from pydantic import ValidationError

from models import BadInputError, Topology, parse_cpuset


def cpu(number, core, **where):
    return {"cpu": number, "core": core} | where


GOOD = {
    "apiVersion": "cpusat/v1",
    "kind": "Topology",
    "name": "1s2n-2c4t",
    "cpus": [
        cpu(0, 0, socket=0, die=0, cluster=3, numa=0, l3=0, core_type="performance"),
        cpu(1, 1, socket=0, die=0, numa=1, l3=1),
        cpu(2, 0, socket=0, die=0, cluster=3, numa=0, l3=0, core_type="performance"),
        cpu(3, 1, socket=0, die=0, numa=1, l3=1),
    ],
    "numa_nodes": [
        {"id": 0, "distances": {"0": 10, "1": 21, "5": 30}},
        {"id": 1, "distances": {"0": 21, "1": 10, "5": 30}},
        {"id": 5, "distances": {"0": 30, "1": 30, "5": 10}},
    ],
    "devices": [
        {"name": "eth0", "pci": "0000:17:00.0", "pci_root": "pci0000:16", "numa": 0, "local_cpus": "0,9"},
        {"name": "gpu", "numa": 1},
        {"name": "disk"},
    ],
    "reserved": "0",
    "held": {"claim-a": "1", "claim-b": "3"},
    "requests": [{"name": "a", "cpus": 1}, {"name": "b", "cpus": 2, "policy": "distributed"}],
    "constraints": [{"match": "numa", "requests": ["a", "b"]}],
}


def with_cpu(index, **change):
    return {"cpus": [each | change if i == index else each for i, each in enumerate(GOOD["cpus"])]}


def with_node(index, **change):
    return {"numa_nodes": [each | change if i == index else each for i, each in enumerate(GOOD["numa_nodes"])]}


REFUSED = {
    "a CPU given twice": (with_cpu(1, cpu=0), "", "CPU 0 is given twice"),
    "a core over two sockets": (
        with_cpu(2, socket=1),
        "",
        "core 0 lies in two sockets: CPU 0 in 0, CPU 2 in 1",
    ),
    "a core over two NUMA nodes": (
        with_cpu(2, numa=1),
        "",
        "core 0 lies in two NUMA nodes: CPU 0 in 0, CPU 2 in 1",
    ),
    "a core over two L3s": (with_cpu(2, l3=1), "", "core 0 lies in two L3s: CPU 0 in 0, CPU 2 in 1"),
    "a core half without L3": (with_cpu(2, l3=None), "", "core 0 lies in two L3s: CPU 0 in 0, CPU 2 in None"),
    "a core over two dies": (with_cpu(2, die=1), "", "core 0 lies in two dies: CPU 0 in 0, CPU 2 in 1"),
    "a core over two clusters": (with_cpu(2, cluster=1), "", "core 0 lies in two clusters"),
    "a core of two types": (
        with_cpu(2, core_type="efficiency"),
        "",
        "core 0 lies in two core types: CPU 0 in performance, CPU 2 in efficiency",
    ),
    "a NUMA node that is not listed": (
        {"cpus": [*GOOD["cpus"], cpu(9, 9, numa=7)]},
        "",
        "CPU 9 lies in NUMA node 7, which numa_nodes does not list",
    ),
    "a device in a NUMA node that is not listed": (
        {"devices": [{"name": "eth0", "numa": 3}]},
        "",
        "device 'eth0' lies in NUMA node 3, which numa_nodes does not list",
    ),
    "a NUMA node listed twice": (with_node(2, id=1), "", "NUMA node 1 is given twice"),
    "a device listed twice": ({"devices": [{"name": "a"}, {"name": "a"}]}, "", "device a is given twice"),
    "a missing distance": (
        with_node(1, distances={"0": 21, "1": 10}),
        "",
        "NUMA node 1 has no distance to NUMA node 5",
    ),
    "distances of one NUMA node only": (
        with_node(0, distances={}),
        "",
        "NUMA node 0 has no distance to NUMA node 0",
    ),
    "a distance to nowhere": (
        with_node(0, distances={"0": 10, "1": 21, "5": 30, "8": 1}),
        "",
        "NUMA node 0 has a distance to 8, which is not listed",
    ),
    "a distance above a byte": (
        with_node(0, distances={"0": 10, "1": 256, "5": 30}),
        "numa_nodes.0.distances.1",
        "less than or equal to 255",
    ),
    "reserved CPUs that are not online": ({"reserved": "0,7-8"}, "", "CPUs 7-8 are reserved but not online"),
    "held CPUs that are not online": (
        {"held": {"claim-a": "1,8"}},
        "",
        "CPUs 8 are held by 'claim-a' but not online",
    ),
    "a CPU held and reserved": (
        {"held": {"claim-a": "0"}},
        "",
        "CPU 0 is held by 'claim-a' and is reserved too",
    ),
    "a CPU held twice": (
        {"held": {"claim-a": "1", "claim-b": "1"}},
        "",
        "CPU 1 is held by 'claim-b' and is held by 'claim-a' too",
    ),
    "no CPU": ({"cpus": []}, "cpus", "at least 1 item"),
    "an unknown key": ({"sockets": 2}, "sockets", "unknown key"),
    "an unknown key of a CPU": (with_cpu(0, node=1), "cpus.0.node", "unknown key"),
    "a CPU that is no number": (with_cpu(0, cpu="0"), "cpus.0.cpu", "valid integer"),
    "a CPU above all kernels": (with_cpu(0, cpu=65_536), "cpus.0.cpu", "less than or equal to 65535"),
    "an L3 of -1": (with_cpu(0, l3=-1), "cpus.0.l3", "greater than or equal to 0"),
    "an unknown core type": (with_cpu(0, core_type="big"), "cpus.0.core_type", "'standard', 'performance'"),
    "a CPU list that is none": ({"reserved": "0-"}, "reserved", "'0-' is not a CPU number"),
    "another kind of document": ({"kind": "Pod"}, "kind", "'Topology'"),
    "another version": ({"apiVersion": "cpusat/v2"}, "apiVersion", "'cpusat/v1'"),
    "a request that contradicts itself": (
        {"requests": [{"cpus": 1, "threads": "spread", "full_cores": True}], "constraints": []},
        "requests.0",
        "threads: spread and full_cores contradict each other",
    ),
    "two requests of one name": (
        {"requests": [{"cpus": 1}, {"cpus": 1}], "constraints": []},
        "",
        "request name 'cpus' is given twice",
    ),
    "a rule for a request that is not there": (
        {"requests": [{"cpus": 1}]},
        "",
        "constraint names the unknown request 'a'",
    ),
}


@pytest.mark.parametrize(("change", "place", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_machine_is_refused_with_place_and_reason(change, place, reason):
    with pytest.raises(ValidationError) as caught:
        Topology.model_validate(GOOD | change)
    error = BadInputError.from_pydantic(caught.value, file="t.json")
    assert (error.file, error.place) == ("t.json", place)
    assert reason in error.reason
    assert str(error).startswith("t.json: " + (f"{place}: " if place else ""))
    assert "\n" not in str(error)


def test_a_machine_is_read_and_written_without_loss():
    topology = Topology.model_validate(GOOD)
    assert Topology.model_validate_json(topology.to_json()) == topology
    assert topology.model_dump(mode="json", by_alias=True, exclude_unset=True)["held"] == GOOD["held"]


def test_a_written_machine_has_one_cpu_a_line():
    lines = Topology.model_validate(GOOD).to_json().splitlines()
    assert sum('"cpu":' in line for line in lines) == 4
    assert lines[1:3] == ['  "apiVersion": "cpusat/v1",', '  "kind": "Topology",']


def test_online_allocatable_and_free():
    topology = Topology.model_validate(GOOD)
    assert topology.online == {0, 1, 2, 3}
    assert topology.allocatable == {1, 2, 3}
    assert topology.free == {2}


LOCAL = {
    "the CPUs that a device names, as far as online": ("eth0", "0"),
    "the NUMA node of a device that names none": ("gpu", "1,3"),
    "the NUMA nodes of a CPU list": ("2", "0,2"),
    "the NUMA nodes of a longer one": ("0-1", "0-3"),
}
LOST = {
    "a device that is not there": (
        "eth1",
        "near: 'eth1' is neither a device of this machine (eth0, gpu, disk) nor a CPU list",
    ),
    "a device that is nowhere": ("disk", "near: device 'disk' has neither local_cpus nor numa"),
    "a CPU that is not online": ("2,9", "near: '2,9' must name CPUs that are online"),
    "no CPU": ("", "near: '' must name CPUs that are online"),
}


@pytest.mark.parametrize(("near", "local"), LOCAL.values(), ids=LOCAL.keys())
def test_local_are(near, local):
    assert Topology.model_validate(GOOD).local_cpus(near) == parse_cpuset(local)


@pytest.mark.parametrize(("near", "message"), LOST.values(), ids=LOST.keys())
def test_near_what_cannot_be_found_is_bad_input(near, message):
    with pytest.raises(BadInputError) as caught:
        Topology.model_validate(GOOD).local_cpus(near)
    assert str(caught.value) == message


def test_without_numa_all_cpus_are_near_each_other():
    flat = Topology.model_validate({"cpus": [cpu(0, 0), cpu(1, 1)]})
    assert flat.local_cpus("0") == {0, 1}
