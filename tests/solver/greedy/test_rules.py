"""The kubelet's rules one by one, on machines small enough to work the answers out by hand."""

import pytest

from models import CPU, Topology, format_cpuset, from_mask, parse_cpuset, to_mask
from solver.greedy import take_distributed, take_packed
from topologies.graph import Machine
from topologies.synthetic import build

TWO_SOCKETS = "socket:2 numa:1 core:4 cpu:2"
"""NUMA node 0 holds CPUs 0-3,8-11, NUMA node 1 the others; CPU n and n + 8 are siblings."""
FOUR_NUMA_NODES = "socket:2 numa:2 core:2 cpu:2"
"""NUMA nodes 0 to 3 hold 0-1,8-9 | 2-3,10-11 in socket 0, 4-5,12-13 | 6-7,14-15 in socket 1."""
SOCKETS_IN_NUMA_NODES = "numa:2 socket:2 core:2 cpu:1"
"""Sockets 0-1 | 2-3 in NUMA node 0, 4-5 | 6-7 in NUMA node 1; no siblings."""
TWO_L3S = "socket:1 numa:1 l3:2 core:2 cpu:2"
"""L3s 0-1,4-5 | 2-3,6-7; CPU n and n + 4 are siblings."""
THREE_NUMA_NODES = "socket:1 numa:3 core:4 cpu:1"
"""NUMA nodes 0-3 | 4-7 | 8-11, no siblings."""
NO_L3 = "socket:1 numa:1 core:4 cpu:2"
"""Cores of CPU n and n + 4."""

PACKED = {
    "a whole socket that is free is taken, not part of another": (TWO_SOCKETS, "1-15", 8, {}, "4-7,12-15"),
    "among equals the lower id comes first": (TWO_SOCKETS, "0-15", 2, {}, "0,8"),
    "whole cores come from the NUMA node with the fewest free CPUs": (TWO_SOCKETS, "0-9,12-15", 4, {}, "0-1,8-9"),
    "a single CPU comes from a half-free core": (TWO_SOCKETS, "0-9,12-15", 1, {}, "2"),
    "what whole cores leave over comes from a half-free core": (TWO_SOCKETS, "0-9,12-15", 3, {}, "0,2,8"),
    "spread takes single CPUs by number": (TWO_SOCKETS, "0-9,12-15", 3, {"spread": True}, "0-2"),
    "spread takes what is whole all the same": (TWO_SOCKETS, "0-15", 8, {"spread": True}, "0-3,8-11"),
    "a socket is taken before NUMA nodes": (FOUR_NUMA_NODES, "0-2,4-9,12-15", 8, {}, "4-7,12-15"),
    "what whole sockets leave over is a NUMA node": (FOUR_NUMA_NODES, "0-15", 12, {}, "0-5,8-13"),
    "the fullest NUMA node of another socket comes later": (FOUR_NUMA_NODES, "0-6,8,12-13", 1, {}, "2"),
    "NUMA nodes of the fuller socket come first": (FOUR_NUMA_NODES, "0-7,9-15", 4, {}, "2-3,10-11"),
    "a NUMA node is taken before sockets in it": (SOCKETS_IN_NUMA_NODES, "1-7", 4, {}, "4-7"),
    "a socket is taken before cores of it": (SOCKETS_IN_NUMA_NODES, "1-7", 2, {}, "2-3"),
    "whole cores do not look at L3s": (TWO_L3S, "1-7", 4, {}, "1-2,5-6"),
    "a whole L3 is taken where L3s are preferred": (TWO_L3S, "1-7", 4, {"prefer_l3": True}, "2-3,6-7"),
    "what whole L3s leave over comes from the next": (TWO_L3S, "0,2-4,6-7", 5, {"prefer_l3": True}, "0,2-3,6-7"),
    "an L3 with half-free cores only is passed by": (TWO_L3S, "1-4,6-7", 2, {"prefer_l3": True}, "2,6"),
    "an odd number splits the last core of an L3": (TWO_L3S, "0-1,4-5,7", 3, {"prefer_l3": True}, "0-1,4"),
    "without any L3 the machine is one": (NO_L3, "1-3,5-7", 3, {"prefer_l3": True}, "1-2,5"),
    "nothing is given where too few are free": (TWO_L3S, "1-3", 4, {}, None),
    "CPUs that are not online are not free": (TWO_L3S, "6-100", 3, {}, None),
}

DISTRIBUTED = {
    "one NUMA node where one will do, the emptiest": (FOUR_NUMA_NODES, "1-15", 3, {}, "2-3,10"),
    "two NUMA nodes give as much as each other": (TWO_SOCKETS, "0-15", 10, {}, "0-2,4-6,8-9,12-13"),
    "the emptiest two NUMA nodes give": (FOUR_NUMA_NODES, "0-7,9-15", 6, {}, "2-5,10,12"),
    "the first NUMA node gives the odd CPU": (FOUR_NUMA_NODES, "0-15", 5, {}, "0-2,8,10"),
    "the emptier NUMA node gives the odd CPU": (TWO_SOCKETS, "0-6,8-14", 9, {}, "0-2,4-5,8-9,12-13"),
    "shares in groups of two": (FOUR_NUMA_NODES, "0-15", 6, {"group": 2}, "0-2,8-10"),
    "three in groups of two are packed": (FOUR_NUMA_NODES, "0-15", 3, {"group": 2}, "0-1,8"),
    "what has no even split is packed": (TWO_SOCKETS, "0,4-8,12-14", 8, {}, "0,4-6,8,12-14"),
    "one NUMA node may give the whole remainder": (THREE_NUMA_NODES, "0,4,8-11", 5, {}, "0,4,8-10"),
    "spread shares go by number": (TWO_SOCKETS, "0-15", 10, {"spread": True}, "0-8,12"),
    "nothing is given where too few are free": (TWO_SOCKETS, "1-3", 4, {}, None),
}

HYBRID = {
    "counted, a half-free core is not whole": ("0-1,3", 2, {}, "0-1"),
    "averaged, a single CPU does not split a core": ("0-7", 1, {"prefer_l3": True}, "4"),
}
"""Cores 0-1 | 2-3 | 4 | 5 | 6 | 7 in one L3; on average a core has one CPU."""


def listed(mask):
    return None if mask is None else format_cpuset(from_mask(mask))


@pytest.mark.parametrize(("machine", "free", "cpus", "options", "expected"), PACKED.values(), ids=PACKED.keys())
def test_packed(machine, free, cpus, options, expected):
    taken = take_packed(Machine(build(machine)), to_mask(parse_cpuset(free)), cpus, **options)
    assert listed(taken) == expected


@pytest.mark.parametrize(
    ("machine", "free", "cpus", "options", "expected"), DISTRIBUTED.values(), ids=DISTRIBUTED.keys()
)
def test_distributed(machine, free, cpus, options, expected):
    taken = take_distributed(Machine(build(machine)), to_mask(parse_cpuset(free)), cpus, **options)
    assert listed(taken) == expected


@pytest.mark.parametrize(("free", "cpus", "options", "expected"), HYBRID.values(), ids=HYBRID.keys())
def test_on_unequal_cores_the_better_of_counting_and_averaging(free, cpus, options, expected):
    cores = (0, 0, 1, 1, 2, 3, 4, 5)
    topology = Topology(cpus=[CPU(cpu=cpu, core=core, l3=0) for cpu, core in enumerate(cores)])
    assert listed(take_packed(Machine(topology), to_mask(parse_cpuset(free)), cpus, **options)) == expected
