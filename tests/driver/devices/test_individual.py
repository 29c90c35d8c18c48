"""Devices that are single CPUs, and their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.individual import names_of
from tests.driver.devices.nodes import devices, numbers
from topologies import catalog, synthetic

PAIRS = synthetic.build("core:4 cpu:2")
"""8 CPUs: CPU n and n + 4 are siblings."""

INDIVIDUAL = {"cpuDeviceMode": "individual"}


@pytest.mark.parametrize(
    ("reserved", "order"),
    [
        ("", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("0", [1, 5, 2, 6, 3, 7, 4]),
        ("0,4", [1, 5, 2, 6, 3, 7]),
        ("4", [0, 1, 5, 2, 6, 3, 7]),
        ("1-2", [0, 4, 3, 7, 5, 6]),
    ],
)
def test_siblings_are_neighbours_and_cores_stand_by_their_first_cpu_that_is_not_reserved(
    reserved: str, order: list[int]
) -> None:
    """The order of dra-driver-cpu: live claims know CPUs by it."""
    assert numbers(devices(PAIRS, reserved, **INDIVIDUAL)) == {
        f"cpudev{i:03d}": cpu for i, cpu in enumerate(order)
    }


def test_cores_of_four_cpus_stand_together_too() -> None:
    found = numbers(devices(synthetic.build("core:2 cpu:4"), "0", **INDIVIDUAL))
    assert list(found.values()) == [1, 3, 5, 7, 2, 4, 6]


def test_a_single_cpu_has_the_attributes_of_dra_driver_cpu_and_no_capacity() -> None:
    machine = catalog.read("2s4n-56c112t-xeon-8280-snc2")
    found = next(device for device in devices(machine, **INDIVIDUAL) if device.cpus == {30})
    (cpu,) = [cpu for cpu in machine.cpus if cpu.cpu == 30]
    assert found.attributes == {
        "dra.cpu/smtEnabled": True,
        "resource.kubernetes.io/numaNode": cpu.numa,
        "dra.cpu/numaNodeID": cpu.numa,
        "dra.net/numaNode": cpu.numa,
        "dra.cpu/socketID": cpu.socket,
        "dra.cpu/cpuID": 30,
        "dra.cpu/coreID": cpu.core,
        "dra.cpu/coreType": "standard",
        "dra.cpu/cacheL3ID": cpu.l3,
    }
    assert found.capacity is None


def test_cores_are_performance_or_efficiency_cores_by_their_short_names() -> None:
    found = devices(catalog.read("1s1n-20c28t-core-i7-14700"), **INDIVIDUAL)
    kinds = [device.attributes["dra.cpu/coreType"] for device in found]
    assert (kinds.count("p-core"), kinds.count("e-core")) == (16, 12)


def test_an_l3_that_is_not_there_is_minus_one() -> None:
    bare = PAIRS.model_copy(update={"cpus": tuple(cpu.model_copy(update={"l3": None}) for cpu in PAIRS.cpus)})
    assert {device.attributes["dra.cpu/cacheL3ID"] for device in devices(bare, **INDIVIDUAL)} == {-1}


def test_the_last_cpus_stay_shared_but_not_those_that_the_kernel_isolates() -> None:
    assert 7 not in numbers(devices(PAIRS, min_shared=1, **INDIVIDUAL)).values()
    left = numbers(devices(PAIRS, min_shared=1, isolated="2-3,6-7", **INDIVIDUAL))
    assert sorted(left.values()) == [0, 1, 2, 3, 4, 6, 7]


def test_no_cpu_is_published_where_too_few_can_be_shared() -> None:
    assert numbers(devices(PAIRS, min_shared=8, isolated="3", **INDIVIDUAL)) == {}


def test_cpus_that_stay_shared_do_not_change_the_names_of_others() -> None:
    all_names = numbers(devices(PAIRS, **INDIVIDUAL))
    left = numbers(devices(PAIRS, min_shared=2, isolated="2-3,6-7", **INDIVIDUAL))
    assert left == {name: cpu for name, cpu in all_names.items() if cpu not in (1, 5)}


def test_names_stay_while_claims_live_whatever_is_reserved_since() -> None:
    before = numbers(devices(PAIRS, "0", **INDIVIDUAL))
    after = numbers(devices(PAIRS, "1", former=before, **INDIVIDUAL))
    assert {name: cpu for name, cpu in before.items() if cpu != 1} == {
        name: cpu for name, cpu in after.items() if cpu != 0
    }
    assert after["cpudev007"] == 0
    assert numbers(devices(PAIRS, "1", **INDIVIDUAL)) != after


def test_a_thousandth_cpu_follows_the_one_before_it() -> None:
    found = devices(synthetic.build("core:1002 cpu:1"), **INDIVIDUAL)
    assert [device.name for device in found][-3:] == ["cpudev999", "cpudev1000", "cpudev1001"]


@given(
    st.lists(st.integers(0, 9), unique=True),
    st.dictionaries(st.text(max_size=9) | st.from_regex(r"\Acpudev[0-9]{3,7}\Z"), st.integers(-5, 12)),
)
def test_whatever_names_were_kept_each_cpu_has_one_name_and_each_name_one_cpu(
    order: list[int], former: dict[str, int]
) -> None:
    names = names_of(order, former)
    assert sorted(names.values()) == sorted(order)
    assert all(former[name] == cpu for name, cpu in names.items() if name in former)
