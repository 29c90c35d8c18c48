"""Devices with capacity, by NUMA node, socket and machine."""

from typing import Any

import pytest

from driver.devices.device import Capacity
from models import Topology
from tests.driver.devices.nodes import devices, with_roots, without
from topologies import catalog, synthetic

TWO_SOCKETS = synthetic.build("socket:2 numa:2 core:2 cpu:2")
"""16 CPUs: CPU n and n + 8 are siblings."""

HYBRID = "1s1n-20c28t-core-i7-14700"
"""8 cores of two CPUs, 12 of one."""


def capacities(topology: Topology, *args: Any, **settings: Any) -> dict[str, tuple[int, int]]:
    return {
        device.name: (device.capacity.value, device.capacity.step)
        for device in devices(topology, *args, **settings)
        if device.capacity
    }


def test_groups_are_named_after_the_kernels_numbers_and_are_all_their_cpus() -> None:
    found = {
        by: {device.name: sorted(device.cpus) for device in devices(TWO_SOCKETS, groupBy=by)}
        for by in ("numanode", "socket", "machine")
    }
    assert found == {
        "numanode": {f"cpudevnuma00{n}": [2 * n, 2 * n + 1, 2 * n + 8, 2 * n + 9] for n in range(4)},
        "socket": {
            "cpudevsocket000": [0, 1, 2, 3, 8, 9, 10, 11],
            "cpudevsocket001": [4, 5, 6, 7, 12, 13, 14, 15],
        },
        "machine": {"cpudevmachine": list(range(16))},
    }


def test_devices_are_found_by_name() -> None:
    found = devices(TWO_SOCKETS, "0")
    assert found.cpus("cpudevnuma000") == {1, 8, 9}
    assert found.cpus("cpudevnuma009") is None


NUMA = {"resource.kubernetes.io/numaNode": 2, "dra.cpu/numaNodeID": 2, "dra.net/numaNode": 2}
SOCKET = {"dra.cpu/socketID": 1}


@pytest.mark.parametrize(
    ("group_by", "device", "attributes"),
    [
        ("numanode", "cpudevnuma002", {**NUMA, **SOCKET, "dra.cpu/numCPUs": 3}),
        ("socket", "cpudevsocket001", {**SOCKET, "dra.cpu/numCPUs": 7}),
        ("machine", "cpudevmachine", {"dra.cpu/numCPUs": 15}),
    ],
)
def test_a_group_has_the_attributes_of_dra_driver_cpu(
    group_by: str, device: str, attributes: dict[str, Any]
) -> None:
    (found,) = [each for each in devices(TWO_SOCKETS, "4", groupBy=group_by) if each.name == device]
    assert found.attributes == {"dra.cpu/smtEnabled": True, **attributes}


def test_smt_is_enabled_where_a_core_has_two_cpus() -> None:
    for description, smt in (("core:2 cpu:2", True), ("core:4 cpu:1", False)):
        (only,) = devices(synthetic.build(description))
        assert only.attributes["dra.cpu/smtEnabled"] is smt


def test_a_machine_without_numa_nodes_has_one_device_of_number_0() -> None:
    (only,) = devices(catalog.read("1s1n-4c4t-vm"))
    assert (only.name, only.attributes["resource.kubernetes.io/numaNode"]) == ("cpudevnuma000", 0)


def test_groups_without_cpus_to_give_are_not_published() -> None:
    assert capacities(TWO_SOCKETS, "0-1,8-9") == {f"cpudevnuma00{n}": (4, 1) for n in (1, 2, 3)}


def test_with_whole_cores_as_the_rule_a_reserved_cpu_strands_its_sibling() -> None:
    assert capacities(TWO_SOCKETS, "0", fullCores=True, groupBy="socket") == {
        "cpudevsocket000": (6, 2),
        "cpudevsocket001": (8, 2),
    }
    assert capacities(TWO_SOCKETS, "0-1", fullCores=True) == {f"cpudevnuma00{n}": (4, 2) for n in (1, 2, 3)}


def test_whole_cores_of_several_sizes_are_taken_by_the_largest() -> None:
    assert capacities(catalog.read(HYBRID), fullCores=True) == {"cpudevnuma000": (28, 2)}
    assert capacities(catalog.read(HYBRID), "27", fullCores=True) == {"cpudevnuma000": (27, 2)}
    assert capacities(catalog.read("2s4n-40c320t-power10-s1022"), fullCores=True, groupBy="socket") == {
        "cpudevsocket000": (160, 8),
        "cpudevsocket001": (160, 8),
    }


def test_cores_that_make_no_whole_steps_together_are_not_published() -> None:
    machine = without(synthetic.build("core:4 cpu:4"), "1,2")
    assert capacities(machine, fullCores=True) == {"cpudevnuma000": (8, 4)}
    assert capacities(without(machine, "5-6"), fullCores=True) == {"cpudevnuma000": (12, 4)}


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"groupBy": "machine", "min_shared": 1}, {"cpudevmachine": 15}),
        ({"groupBy": "machine", "min_shared": 3}, {"cpudevmachine": 13}),
        ({"groupBy": "socket", "min_shared": 1}, {"cpudevsocket000": 7, "cpudevsocket001": 8}),
        ({"groupBy": "socket", "min_shared": 2}, {"cpudevsocket000": 6, "cpudevsocket001": 8}),
        ({"groupBy": "socket", "min_shared": 3}, {"cpudevsocket000": 5, "cpudevsocket001": 8}),
        (
            {"groupBy": "socket", "min_shared": 1, "isolated": "0-3,8-11"},
            {"cpudevsocket000": 8, "cpudevsocket001": 7},
        ),
        ({"groupBy": "machine", "min_shared": 2, "isolated": "1-15"}, {}),
        ({"groupBy": "socket", "min_shared": 1, "fullCores": True}, {"cpudevsocket000": 6, "cpudevsocket001": 8}),
        ({"groupBy": "socket", "min_shared": 2, "fullCores": True}, {"cpudevsocket000": 6, "cpudevsocket001": 8}),
        ({"groupBy": "machine", "min_shared": 16}, {}),
        ({"groupBy": "machine", "min_shared": 99}, {}),
    ],
    ids=str,
)
def test_cpus_that_stay_shared_are_taken_off_the_device_with_most_to_share(
    settings: dict[str, Any], left: dict[str, int]
) -> None:
    assert {name: value for name, (value, _) in capacities(TWO_SOCKETS, **settings).items()} == left


def test_pcie_roots_are_published_where_they_are_near_if_they_are_wanted() -> None:
    machine = with_roots(TWO_SOCKETS, 2)
    found = {
        device.name: device.attributes.get("resource.kubernetes.io/pcieRoot")
        for device in devices(machine, groupBy="socket", exposePCIeRoots=True)
    }
    assert found == {"cpudevsocket000": ("pci0000:00", "pci0001:00"), "cpudevsocket001": None}
    assert not [d for d in devices(machine, groupBy="socket") if "resource.kubernetes.io/pcieRoot" in d.attributes]


def test_more_pcie_roots_than_a_device_can_list_are_left_out_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for roots, listed in ((36, True), (37, False)):
        (only,) = devices(with_roots(TWO_SOCKETS, roots), groupBy="machine", exposePCIeRoots=True)
        assert ("resource.kubernetes.io/pcieRoot" in only.attributes) is listed
    assert "CPUs 0-15 are local to 37 PCIe roots; none are published" in caplog.text


def test_a_capacity_is_by_steps_of_one_cpu_unless_said() -> None:
    assert Capacity(4) == Capacity(4, step=1)
