"""Which requests dynamic programming settles. That it settles them rightly is for the brute force to say."""

import pytest

from models import Request, Topology, to_mask
from solver.dp.optimum import optimum
from solver.engine import solve
from solver.problem import Prepared, Problem
from topologies import catalog

OVER_SOCKETS = "8s1n-8c8t-vm-socket-per-cpu"


def without_numa(sockets: int, cores: int) -> Topology:
    """So many sockets of as many cores with two threads each, by a kernel without NUMA."""
    cpus = [
        {"cpu": number, "core": number // 2, "socket": number // 2 // cores}
        for number in range(sockets * cores * 2)
    ]
    return Topology.model_validate({"name": "without NUMA", "cpus": cpus})


@pytest.mark.parametrize("policy", ["packed", "distributed"])
@pytest.mark.parametrize("cpus", [1, 5, 8])
def test_the_sockets_of_one_numa_node_need_no_search(policy, cpus):
    result = solve(catalog.read(OVER_SOCKETS), Request(cpus=cpus, policy=policy))
    assert (result.status, result.engine) == ("optimal", "dp")
    assert result.metrics["sockets"] == cpus


@pytest.mark.parametrize(
    ("free", "cpus", "taken"),
    [
        ("all", 8, {0, 1, 2, 3, 4, 5, 6, 7}),
        ("4-7,12-23", 8, {16, 17, 18, 19, 20, 21, 22, 23}),
        ("0,2,4,6,8-11,16-19", 4, {8, 9, 10, 11}),
        ("0-5,8-12,16-19", 10, {0, 1, 2, 3, 4, 5, 8, 9, 10, 11}),
    ],
)
def test_fewest_sockets_then_fewest_cores(free, cpus, taken):
    topology = without_numa(sockets=3, cores=4)
    result = solve(topology, Request(cpus=cpus), free=None if free == "all" else free)
    assert result.engine == "dp"
    assert result.allocations[0].cpuset == taken


def test_where_nothing_can_be_placed_tables_settle_nothing():
    prepared = Prepared(catalog.read(OVER_SOCKETS))
    problem = Problem.of(prepared, to_mask(range(8)), [Request(cpus=2, align_by_socket=True, strict=True)])
    assert optimum(problem, problem.demands[0]) is None
