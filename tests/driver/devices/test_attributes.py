"""What an external scheduler is told, so that it can choose CPUs by number."""

import pytest

from driver.devices.attributes import smt_layout
from models import CPU, Topology
from tests.driver.devices.nodes import devices
from topologies import catalog, synthetic

EXTERNAL = {"groupBy": "machine", "machineAllocation": "external"}


def machine(*cores: tuple[int, ...]) -> Topology:
    return Topology(cpus=tuple(CPU(cpu=cpu, core=i) for i, cpus in enumerate(cores) for cpu in cpus))


@pytest.mark.parametrize(
    ("cores", "layout"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], "0-7>4"),
        ([(0, 1), (2, 3)], "0-3>1"),
        ([(0,), (1,)], "0-1"),
        ([(0, 4), (1, 5), (2, 6), (3, 7), (8, 10), (9, 11), (12,), (13,)], "8-11>2;0-7>4;12-13"),
        ([(0, 1, 2, 3)], ""),
    ],
)
def test_siblings_are_written_by_their_distance(cores: list[tuple[int, ...]], layout: str) -> None:
    assert smt_layout(machine(*cores)) == layout


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("2s8n-128c256t-epyc-7763-nps4", "0-255>128"),
        ("2s2n-192c384t-epyc-9654-nps1", "0-383>192"),
        ("1s1n-64c64t-graviton3", "0-63"),
    ],
)
def test_siblings_of_real_machines_fit_into_an_attribute(name: str, layout: str) -> None:
    (only,) = devices(catalog.read(name), **EXTERNAL)
    assert only.attributes["dra.cpu/smtLayout"] == layout


def test_an_external_scheduler_is_told_which_cpus_it_may_name() -> None:
    (only,) = devices(synthetic.build("core:8 cpu:2"), "0,8", **EXTERNAL)
    assert only.attributes["dra.cpu/cpuIDs"] == "1-7,9-15"
    (auto,) = devices(synthetic.build("core:8 cpu:2"), "0,8", groupBy="machine")
    assert not {"dra.cpu/cpuIDs", "dra.cpu/smtLayout"} & auto.attributes.keys()


def test_a_list_that_is_too_long_for_an_attribute_is_left_out() -> None:
    every_second = ",".join(map(str, range(0, 128, 2)))
    (only,) = devices(synthetic.build("core:128 cpu:1"), every_second, **EXTERNAL)
    assert "dra.cpu/cpuIDs" not in only.attributes
    assert only.attributes["dra.cpu/smtLayout"] == "0-127"
