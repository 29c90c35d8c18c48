from typing import Any

import kubernetes_validate
import pytest

from driver.config import Config
from driver.devices.devices import Capacity, DeviceMap, devices_of
from driver.devices.slices import NodeRef, slices
from driver.node import NodeCPUs
from models import Topology
from topologies import catalog, synthetic

NODE = NodeRef("worker-1", "5d7a1f2e-0000-4000-8000-000000000001")
MODES: list[dict[str, Any]] = [
    {"groupBy": "numanode"},
    {"groupBy": "numanode", "fullCores": True},
    {"groupBy": "socket"},
    {"groupBy": "machine"},
    {"cpuDeviceMode": "individual"},
]


def devices(
    topology: Topology, reserved: set[int] = frozenset(), former: Any = None, **settings: Any
) -> DeviceMap:  # type: ignore[assignment]
    config = Config.model_validate(settings)
    node = NodeCPUs.of(topology.model_copy(update={"reserved": frozenset(reserved)}), min_shared=0)
    return devices_of(config, topology, node, former)


@pytest.mark.parametrize("settings", MODES, ids=str)
@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_slices_of_every_catalog_machine_are_valid_for_the_api(version: str, settings: dict[str, Any]) -> None:
    for name in catalog.names():
        found = devices(catalog.read(name), exposePCIeRoots=version >= "1.36", **settings)
        for document in slices(found, NODE, 3, node_allocatable=version >= "1.37"):
            kubernetes_validate.validate(document, version, strict=True)
            assert len(document["spec"]["devices"]) <= 128


def test_groups_are_named_after_the_kernels_numbers() -> None:
    topology = synthetic.build("socket:2 numa:2 core:2 cpu:2")
    names = {
        by: [device.name for device in devices(topology, groupBy=by)] for by in ("numanode", "socket", "machine")
    }
    assert names == {
        "numanode": ["cpudevnuma000", "cpudevnuma001", "cpudevnuma002", "cpudevnuma003"],
        "socket": ["cpudevsocket000", "cpudevsocket001"],
        "machine": ["cpudevmachine"],
    }


def test_a_group_has_the_attributes_of_dra_driver_cpu() -> None:
    first = next(iter(devices(synthetic.build("socket:2 numa:1 core:4 cpu:2"), {0})))
    assert first.attributes == {
        "dra.cpu/smtEnabled": True,
        "dra.cpu/numCPUs": 7,
        "dra.cpu/socketID": 0,
        "resource.kubernetes.io/numaNode": 0,
        "dra.cpu/numaNodeID": 0,
        "dra.net/numaNode": 0,
    }
    assert first.capacity == Capacity(7)


def test_with_whole_cores_as_the_rule_a_reserved_cpu_strands_its_sibling() -> None:
    first = next(iter(devices(synthetic.build("socket:1 core:4 cpu:2"), {0}, fullCores=True)))
    assert first.capacity == Capacity(6, step=2)
    (document,) = slices([first], NODE, 1)
    assert document["spec"]["devices"][0]["capacity"]["dra.cpu/cpu"] == {
        "value": "6",
        "requestPolicy": {"default": "6", "validRange": {"min": "2", "max": "6", "step": "2"}},
    }


@pytest.mark.parametrize(
    ("capacity", "policy"),
    [
        (Capacity(1), {"default": "1", "validRange": {"min": "1", "max": "1"}}),
        (Capacity(2), {"default": "2", "validRange": {"min": "1", "max": "2", "step": "1"}}),
        (Capacity(8, 8), {"default": "8", "validRange": {"min": "8", "max": "8"}}),
        (Capacity(7, 2), {"default": "6", "validRange": {"min": "2", "max": "6", "step": "2"}}),
    ],
)
def test_a_request_policy_keeps_to_the_rules_of_the_api(capacity: Capacity, policy: dict[str, Any]) -> None:
    found = next(iter(devices(synthetic.build("socket:1 core:4 cpu:2"))))
    (document,) = slices([type(found)(found.name, found.cpus, found.attributes, capacity)], NODE, 1)
    assert document["spec"]["devices"][0]["capacity"]["dra.cpu/cpu"]["requestPolicy"] == policy


def test_cpus_that_stay_shared_are_published_as_missing_from_the_largest_group() -> None:
    topology = synthetic.build("socket:2 numa:1 core:2 cpu:2")
    node = NodeCPUs.of(topology)
    assert node.min_shared == 1
    found = devices_of(Config(), topology, node)
    assert [device.capacity for device in found] == [Capacity(3), Capacity(4)]
    single = devices_of(Config.model_validate({"cpuDeviceMode": "individual"}), topology, node)
    assert len(list(single)) == 7


def test_single_cpus_stand_sibling_beside_sibling_and_reserved_ones_are_left_out() -> None:
    topology = synthetic.build("socket:1 core:4 cpu:2")
    by_core: dict[int, list[int]] = {}
    for cpu in topology.cpus:
        by_core.setdefault(cpu.core, []).append(cpu.cpu)
    found = devices(topology, {0}, cpuDeviceMode="individual")
    order = [cpu for core in sorted(by_core.values()) for cpu in sorted(core) if cpu != 0]
    assert [(device.name, *device.cpus) for device in found] == [
        (f"cpudev{i:03d}", cpu) for i, cpu in enumerate(order)
    ]


def test_a_single_cpu_has_the_attributes_of_dra_driver_cpu() -> None:
    topology = synthetic.build("socket:1 core:2 cpu:1")
    bare = topology.model_copy(
        update={"cpus": tuple(cpu.model_copy(update={"l3": None}) for cpu in topology.cpus)}
    )
    first = next(iter(devices(bare, cpuDeviceMode="individual")))
    assert first.attributes["dra.cpu/cacheL3ID"] == -1
    assert first.attributes["dra.cpu/coreType"] == "standard"
    assert first.attributes["dra.cpu/cpuID"] == 0
    assert first.capacity is None


def test_names_of_single_cpus_stay_while_claims_on_them_live() -> None:
    topology = synthetic.build("socket:1 core:4 cpu:1")
    former = {device.name: min(device.cpus) for device in devices(topology, cpuDeviceMode="individual")}
    found = devices(topology, {1}, former, cpuDeviceMode="individual")
    assert {device.name: min(device.cpus) for device in found} == {"cpudev000": 0, "cpudev002": 2, "cpudev003": 3}
    anew = devices(topology, {0}, {"cpudev000": 1, "cpudev001": 2}, cpuDeviceMode="individual")
    assert {device.name: min(device.cpus) for device in anew} == {"cpudev000": 1, "cpudev001": 2, "cpudev002": 3}


def test_more_devices_than_one_slice_holds_are_one_pool_in_several() -> None:
    found = devices(catalog.read("2s8n-128c256t-epyc-7763-nps4"), cpuDeviceMode="individual")
    documents = slices(found, NODE, 7)
    assert [len(document["spec"]["devices"]) for document in documents] == [128, 128]
    assert {str(document["spec"]["pool"]) for document in documents} == {
        str({"name": "worker-1", "generation": 7, "resourceSliceCount": 2})
    }
    with_roots = devices(
        catalog.read("2s2n-64c128t-xeon-6338n-telco"), exposePCIeRoots=True, cpuDeviceMode="individual"
    )
    assert [len(document["spec"]["devices"]) for document in slices(with_roots, NODE, 1)] == [64, 64]
