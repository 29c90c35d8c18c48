"""ResourceSlices of every catalog machine, against the API's schemas and rules."""

from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.device import Capacity, Device
from driver.devices.slices import NodeRef, slices
from tests.driver.devices.api_rules import VERSIONS, check_pool, check_schema
from tests.driver.devices.nodes import NODE, devices, published, with_roots
from topologies import catalog, synthetic

MODES: dict[str, dict[str, Any]] = {
    "numanode": {},
    "numanode, whole cores": {"fullCores": True, "reserved": "0"},
    "socket": {"groupBy": "socket", "min_shared": 1},
    "machine": {"groupBy": "machine", "reserved": "0-1"},
    "machine, external": {"groupBy": "machine", "machineAllocation": "external"},
    "individual": {"cpuDeviceMode": "individual", "min_shared": 1},
}
LARGE = "2s8n-128c256t-epyc-7763-nps4"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", MODES)
def test_slices_of_every_catalog_machine_are_valid_for_the_api(mode: str, version: str) -> None:
    for name in catalog.names():
        found = devices(catalog.read(name), exposePCIeRoots=version >= "1.36", **MODES[mode])
        documents = slices(found, NODE, 3, node_allocatable=version >= "1.37")
        check_pool(documents)
        for document in documents:
            check_schema(document, version)


def test_the_schemas_are_those_of_kubernetes_validate() -> None:
    (document,) = slices(devices(synthetic.build("core:2")), NODE, 1, node_allocatable=True)
    kubernetes_validate.validate(document, "1.37", strict=True)
    check_schema(document, "1.37")
    for validate in (
        lambda: check_schema(document, "1.34"),
        lambda: kubernetes_validate.validate(document, "1.34", strict=True),
    ):
        with pytest.raises(Exception, match="'nodeAllocatableResources' was unexpected"):
            validate()


def test_a_slice_belongs_to_its_node_and_to_one_pool_of_one_generation() -> None:
    (document,) = slices(devices(synthetic.build("core:2")), NODE, 7)
    assert document["spec"]["driver"] == "dra.cpu"
    assert document["spec"]["nodeName"] == NODE.name
    assert document["spec"]["pool"] == {"name": NODE.name, "generation": 7, "resourceSliceCount": 1}
    (owner,) = document["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": NODE.name, "uid": NODE.uid, "controller": True}


@pytest.mark.parametrize("name", ["n" * 63, "a." * 126 + "b", "a" * 199 + ".b", "a" * 198 + "-.b"])
def test_long_names_of_nodes_make_names_of_slices(name: str) -> None:
    check_pool(slices(devices(synthetic.build("core:2")), NodeRef(name, "u"), 1))


def test_more_devices_than_one_slice_holds_are_one_pool_in_several_slices() -> None:
    found = slices(devices(catalog.read(LARGE), cpuDeviceMode="individual"), NODE, 7)
    assert [len(each["spec"]["devices"]) for each in found] == [128, 128]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {2}


def test_slices_hold_half_as_many_devices_where_an_attribute_is_a_list() -> None:
    machine = with_roots(catalog.read(LARGE), 2)
    found = slices(devices(machine, cpuDeviceMode="individual", exposePCIeRoots=True), NODE, 1)
    assert [len(each["spec"]["devices"]) for each in found] == [64, 64, 64, 64]
    check_pool(found)


def test_a_node_with_nothing_to_give_has_one_slice_without_devices() -> None:
    found = slices(devices(synthetic.build("core:1"), min_shared=1), NODE, 1)
    assert [each["spec"]["devices"] for each in found] == [[]]
    check_pool(found)


@pytest.mark.parametrize(
    ("capacity", "policy"),
    [
        (Capacity(1), {"default": "1", "validRange": {"min": "1", "max": "1"}}),
        (Capacity(2), {"default": "2", "validRange": {"min": "1", "max": "2", "step": "1"}}),
        (Capacity(64), {"default": "64", "validRange": {"min": "1", "max": "64", "step": "1"}}),
        (Capacity(6, 2), {"default": "6", "validRange": {"min": "2", "max": "6", "step": "2"}}),
        (Capacity(8, 8), {"default": "8", "validRange": {"min": "8", "max": "8"}}),
        (Capacity(7, 2), {"default": "6", "validRange": {"min": "2", "max": "6", "step": "2"}}),
    ],
    ids=str,
)
def test_a_request_takes_whole_steps_and_all_of_them_if_it_does_not_say(
    capacity: Capacity, policy: dict[str, Any]
) -> None:
    found = published(Device("d", frozenset(), {}, capacity))
    assert found["capacity"] == {"dra.cpu/cpu": {"value": str(capacity.value), "requestPolicy": policy}}
    assert found["allowMultipleAllocations"] is True


@given(st.integers(1, 4096), st.sampled_from([1, 2, 4, 8]))
def test_a_request_policy_keeps_the_rules_of_the_api(value: int, step: int) -> None:
    if value >= step:
        check_pool(slices([Device("d", frozenset(), {}, Capacity(value, step))], NODE, 1))


@pytest.mark.parametrize(
    ("mode", "mapping"),
    [
        ("numanode", {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}),
        ("machine", {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}),
        ("individual", {"deviceMultiplier": "1"}),
    ],
)
def test_devices_count_as_the_nodes_allocatable_cpus_when_that_is_published(mode: str, mapping: Any) -> None:
    first = next(iter(devices(synthetic.build("core:4"), **MODES[mode])))
    assert published(first, node_allocatable=True)["nodeAllocatableResources"] == {"cpu": {"mapping": mapping}}
    assert "nodeAllocatableResources" not in published(first)
