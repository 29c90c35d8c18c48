"""A small set of solves whose optimum is known, timed where asked: ``pytest tests/benchmarks --benchmark-enable``.

Each optimum follows from its case's reason with pen and paper; both exact engines must reach it.
"""

from dataclasses import dataclass, field
from functools import cache

import pytest

from benchmarks.instances import prepared
from models import Metrics, Request, parse_cpuset
from solver.engine import solve
from solver.methods import EngineChoice

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed (extra 'bench')")

NPS4 = "2s8n-128c256t-epyc-7763-nps4"
PATIENT = 20.0
"""Seconds: the limit is no part of what is asked."""


@dataclass(frozen=True)
class Case:
    """Requests on a machine with held CPUs, the metrics of the optimum, and why it is one."""

    name: str
    machine: str
    requests: tuple[Request, ...]
    optimum: Metrics = field(hash=False)
    reason: str
    held: str = ""


def spans(nodes: int, sockets: int, distance: int) -> Metrics:
    """The first spans of an optimum, on a machine with one type of cores."""
    return {"numa_nodes": nodes, "sockets": sockets, "numa_distance": distance, "core_types": 1}


CASES = (
    Case(
        "one core of a virtual machine",
        "1s1n-4c8t-vm",
        (Request(cpus=2),),
        spans(1, 1, 0) | {"cores": 1, "l3_caches": 1, "numa_leftover": 6, "l3_leftover": 6, "split_cores": 0},
        "siblings share a core",
    ),
    Case(
        "performance cores only",
        "1s1n-16c22t-core-ultra-7-155h",
        (Request(cpus=8),),
        spans(1, 1, 0) | {"cores": 4, "l3_caches": 1, "numa_leftover": 14, "l3_leftover": 12, "split_cores": 0},
        "four cores with two CPUs each beat eight with one; 20 of the 22 CPUs have the L3",
    ),
    Case(
        "just above a NUMA node, packed",
        NPS4,
        (Request(cpus=34),),
        spans(2, 1, 24) | {"cores": 17, "l3_caches": 3, "numa_leftover": 30, "l3_leftover": 14, "split_cores": 0},
        "32 + 2: two L3s in one NUMA node and one core of another",
    ),
    Case(
        "just above a NUMA node, distributed",
        NPS4,
        (Request(cpus=34, policy="distributed"),),
        {"unevenness": 0}
        | spans(2, 1, 24)
        | {"cores": 18, "l3_caches": 4, "numa_balance": 6594, "l3_leftover": 30, "split_cores": 2},
        "17 + 17: each of them splits a core and needs both L3s; balance 6 * 32² + 2 * 15²",
    ),
    Case(
        "whole cores, evenly",
        NPS4,
        (Request(cpus=48, policy="distributed", full_cores=True),),
        {"unevenness": 0}
        | spans(2, 1, 24)
        | {"cores": 24, "l3_caches": 4, "numa_balance": 5248, "l3_leftover": 16, "split_cores": 0},
        "24 + 24: 12 cores each, which need both L3s; the first NUMA node is held; balance 5 * 32² + 2 * 8²",
        held="0-15,128-143",
    ),
    Case(
        "fewer L3s before fewer cores",
        "socket:1 l3:2 core:8 cpu:2",
        (Request(cpus=10, prefer_l3=True),),
        spans(1, 1, 0) | {"l3_caches": 1, "cores": 7, "numa_leftover": 8, "l3_leftover": 0, "split_cores": 0},
        "the second L3 has 10 CPUs on 7 cores; five whole cores would need both L3s",
        held="4-7,20-23,15,31,27-30",
    ),
    Case(
        "no core has a free sibling",
        NPS4,
        (Request(cpus=20),),
        spans(2, 1, 24) | {"cores": 20, "l3_caches": 3, "numa_leftover": 12, "l3_leftover": 4, "split_cores": 0},
        "16 + 4: an L3 has 8 free CPUs and a NUMA node 16",
        held="0-127",
    ),
    Case(
        "one CPU per core, as far as possible",
        NPS4,
        (Request(cpus=24, threads="spread"),),
        spans(1, 1, 0) | {"doubled_threads": 8, "l3_caches": 2, "numa_leftover": 8, "l3_leftover": 8},
        "one NUMA node counts more: 24 CPUs on its 16 cores double 8",
        held="0-3,128-131",
    ),
    Case(
        "two NUMA nodes at least",
        "2s2n-56c112t-xeon-8280",
        (Request(cpus=10, policy="distributed", numa_min=2),),
        {"unevenness": 0, "floor_shortfall": 0}
        | spans(2, 2, 42)
        | {"cores": 6, "l3_caches": 2, "numa_balance": 5202, "l3_leftover": 102, "split_cores": 2},
        "5 + 5: three cores each, one of them split; balance 2 * 51²",
    ),
    Case(
        "greedy wastes a NUMA node",
        "socket:1 numa:4 core:4 cpu:2",
        (Request(cpus=15),),
        spans(2, 1, 24) | {"cores": 8, "l3_caches": 0, "numa_leftover": 1, "l3_leftover": 0, "split_cores": 1},
        "two NUMA nodes of 8 free CPUs hold 15; the kubelet's greedy takes from three",
        held="10,26",
    ),
    Case(
        "eight sockets in a ring",
        "8s8n-224c448t-xeon-8280l",
        (Request(cpus=150),),
        spans(3, 3, 146) | {"cores": 75, "l3_caches": 3, "numa_leftover": 18, "l3_leftover": 18, "split_cores": 0},
        "3 * 56 hold 150; of three sockets one pair at least has no link: 2 * (21 + 21 + 31)",
    ),
    Case(
        "1,024 CPUs",
        "socket:2 numa:16 l3:2 core:8 cpu:2",
        (Request(cpus=100, policy="distributed"),),
        {"unevenness": 0}
        | spans(4, 1, 144)
        | {"cores": 52, "l3_caches": 8, "numa_balance": 28868, "l3_leftover": 28, "split_cores": 4},
        "25 from each of four of the 32 NUMA nodes; balance 28 * 32² + 4 * 7²",
    ),
    Case(
        "two requests together",
        "socket:2 numa:1 core:4 cpu:2",
        (Request(name="a", cpus=6), Request(name="b", cpus=8)),
        {"numa_nodes": 2, "sockets": 2, "numa_distance": 0, "core_types": 2, "cores": 7, "l3_caches": 0}
        | {"numa_leftover": 2, "l3_leftover": 0, "split_cores": 0},
        "each fits a NUMA node of its own; metrics of requests add up",
    ),
)


@cache
def free_of(case: Case) -> frozenset[int]:
    """Online CPUs that are not held."""
    return prepared(case.machine).topology.allocatable - parse_cpuset(case.held)


@pytest.mark.parametrize("engine", ["auto", "cpsat"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_known_optimum_is_proven(benchmark, case: Case, engine: EngineChoice):
    result = benchmark(
        solve, prepared(case.machine), case.requests, free=free_of(case), engine=engine, time_limit=PATIENT
    )
    assert (result.status, result.metrics) == ("optimal", case.optimum), case.reason
    assert list(result.metrics) == list(case.optimum)
