"""Cases from public bug reports: each is solved, and the answer has the property that the report asks for."""

import json
from collections import Counter
from functools import cache

import pytest
from pydantic import ValidationError

from models import CPU, Constraint, Request, Topology, parse_cpuset
from solver.engine import solve
from solver.problem import Prepared
from solver.score import Scorer
from tests.shared import SHARED, needs_shared
from topologies import synthetic
from topologies.graph import Machine

pytestmark = needs_shared

UNIFORM = {
    "S01-device-affinity-floor": "l3:4",
    "S02-distributed-even-split": "l3:1",
    "S03-distributed-whole-cores": "l3:1",
    "S04-distributed-but-fits-one-numa": "l3:1",
    "S05-distributed-align-by-socket": "l3:2",
    "S07-whole-core-remainder-must-terminate": "l3:1",
    "S08-partial-l3-with-lone-threads": "l3:2",
    "S16-l3-sequence-10-8-6": "l3:4",
    "S18-two-requests-one-numa": "l3:1",
    "S20-twenty-numa-no-blowup": "l3:1",
    "S22-prepare-is-idempotent": "l3:1",
    "S24-shared-pool-floor": "l3:1",
    "S26-determinism-and-timeout": "l3:2",
    "S27-bad-quantities": "l3:1",
}
"""L3s per NUMA node of the machines on which every core has as many siblings, numbered as Linux does."""


@cache
def scenarios():
    return {each["id"]: each for each in json.loads((SHARED / "scenarios.json").read_text())}


def uniform(name):
    shape = scenarios()[name]["topology"]
    cores = shape["cores_per_numa"] // int(UNIFORM[name].removeprefix("l3:"))
    around = f"socket:{shape['sockets']} numa:{shape['numa_per_socket']} {UNIFORM[name]}"
    return synthetic.build(f"{around} core:{cores} cpu:{shape['smt']}")


def listed(rows, empty_nodes=()):
    """A machine from rows (CPUs of a core, NUMA node = socket, L3, core type)."""
    cpus = [
        CPU(cpu=cpu, core=core, socket=numa, numa=numa, l3=l3, core_type=core_type)
        for core, (siblings, numa, l3, core_type) in enumerate(rows)
        for cpu in siblings
    ]
    return synthetic.machine(cpus, distance=lambda a, b: 10 if a == b else 40, empty_nodes=empty_nodes)


ODD = {
    "S10-asymmetric-l3": lambda: listed([((2 * n, 2 * n + 1), 0, n // 2, "standard") for n in range(3)]),
    "S12-full-cores-with-reserved-siblings": lambda: listed(
        [((n, n + 6), n % 2, n % 2, "standard") for n in range(6)]
    ),
    "S13-hybrid-reserved-thread": lambda: listed(
        [((2 * n, 2 * n + 1), 0, 0, "performance") for n in range(8)]
        + [((n,), 0, 0, "efficiency") for n in range(16, 28)]
    ),
    "S14-offline-sibling": lambda: listed(
        [(tuple(c for c in (n, n + 48) if c < 95), n // 24, n // 24, "standard") for n in range(48)]
    ),
    "S21-cpuless-numa-nodes": lambda: listed(
        [((n,), n // 72, n // 72, "standard") for n in range(144)], empty_nodes=range(2, 34)
    ),
}


RESERVED = {"S22-prepare-is-idempotent": "0,8", "S24-shared-pool-floor": "0"}
"""Reserved CPUs that only the descriptions of the machines tell."""


def machine(name):
    topology = ODD[name]() if name in ODD else uniform(name)
    reserved = parse_cpuset(scenarios()[name]["policy"].get("reserved", RESERVED.get(name, "")))
    return topology.model_copy(update={"reserved": reserved})


def request(name, cpus=None, **more):
    """The scenario's request, its policy under our names."""
    policy = scenarios()[name]["policy"]
    options = {"policy": policy["mode"]}
    options |= {ours: policy[theirs] for theirs, ours in NAMES.items() if theirs in policy}
    return Request(cpus=cpus or scenarios()[name]["request"]["cpus"], **options | more)


NAMES = {
    "full_pcpus": "full_cores",
    "numa_nodes": "numa_ids",
    "numa_floor": "numa_min",
    "align_by_socket": "align_by_socket",
    "prefer_l3": "prefer_l3",
}


def answer(name, requests=None, **options):
    """The result of the scenario, its free CPUs as given."""
    scenario = scenarios()[name]
    options = {"free": parse_cpuset(scenario["available"]), "time_limit": 30.0} | options
    return solve(machine(name), requests or request(name), **options)


def per_domain(topology, cpuset, level):
    return Counter(getattr(cpu, level) for cpu in topology.cpus if cpu.cpu in cpuset)


def whole_cores(topology, cpuset):
    used = per_domain(topology, cpuset, "core")
    sizes = Counter(cpu.core for cpu in topology.cpus)
    return sum(1 for core in used if used[core] == sizes[core])


def check(name, result):
    """Every field of ``expected`` that can be read off one answer."""
    wanted, topology = scenarios()[name]["expected"], machine(name)
    assert result.status == "optimal"
    taken = frozenset().union(*(each.cpuset for each in result.allocations))
    assert taken <= parse_cpuset(scenarios()[name]["available"]) - topology.reserved
    numa, l3 = per_domain(topology, taken, "numa"), per_domain(topology, taken, "l3")
    found = {
        "feasible": bool(taken),
        "numa_counts": {str(node): count for node, count in numa.items()},
        "numa_counts_sorted": sorted(numa.values()),
        "numa_used": len(numa),
        "numa_ids": sorted(numa),
        "sockets_used": len(per_domain(topology, taken, "socket")),
        "l3_used": len(l3),
        "l3_ids": sorted(l3),
        "max_minus_min": max(numa.values()) - min(numa.values()),
    }
    fields = wanted.keys() & found.keys()
    assert {field: found[field] for field in fields} == {field: wanted[field] for field in fields}
    return taken


PLAIN = [
    "S01-device-affinity-floor",
    "S02-distributed-even-split",
    "S05-distributed-align-by-socket",
    "S10-asymmetric-l3",
    "S20-twenty-numa-no-blowup",
    "S21-cpuless-numa-nodes",
]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("engine", ["auto", "cpsat"])
def test_the_expected_fields_hold(name, engine):
    check(name, answer(name, engine=engine))


def test_s01_holds_wherever_the_floor_is_all_nodes():
    name = "S01-device-affinity-floor"
    check(name, answer(name, request(name, numa_min="all", numa_ids=None)))


def test_s03_every_used_core_is_whole():
    name = "S03-distributed-whole-cores"
    assert whole_cores(machine(name), check(name, answer(name))) == 5


def test_s04_a_floor_of_two_splits_what_one_numa_node_could_hold():
    name = "S04-distributed-but-fits-one-numa"
    check(name, answer(name))
    (split,) = answer(name, request(name, numa_min=2)).allocations
    assert per_domain(machine(name), split.cpuset, "numa") == {0: 3, 1: 3}


def test_s07_seven_whole_cores():
    name = "S07-whole-core-remainder-must-terminate"
    assert whole_cores(machine(name), check(name, answer(name))) == 7


def test_s07_terminates_within_its_limit_by_every_engine():
    name = "S07-whole-core-remainder-must-terminate"
    limit = scenarios()[name]["policy"]["time_limit_s"]
    for engine in ("auto", "cpsat", "greedy"):
        assert answer(name, engine=engine, time_limit=limit).status in ("optimal", "feasible")


def test_s08_the_l3_that_holds_all_with_two_whole_cores():
    name = "S08-partial-l3-with-lone-threads"
    taken = check(name, answer(name))
    assert whole_cores(machine(name), taken) >= scenarios()[name]["expected"]["whole_cores_min"]
    assert taken >= {5, 13, 7, 15}
    assert len(taken & {12, 14}) == 1


def test_s12_ten_are_refused_with_numbers_and_eight_are_given():
    name = "S12-full-cores-with-reserved-siblings"
    scenario = scenarios()[name]
    refused = answer(name)
    assert refused.status == "infeasible"
    assert scenario["expected"]["reason_contains"] in str(refused.infeasible)
    assert refused.infeasible.nearest.instead == "8"
    (given,) = answer(name, request(name, cpus=scenario["request"]["also"]["cpus"])).allocations
    assert given.cpuset == parse_cpuset(scenario["expected"]["also"]["cpuset"])


@pytest.mark.parametrize("full_cores", [False, True])
def test_s13_the_reserved_thread_is_not_given_and_core_types_are_not_mixed(full_cores):
    name = "S13-hybrid-reserved-thread"
    taken = check(name, answer(name, request(name, full_cores=full_cores)))
    assert 0 not in taken
    assert len(per_domain(machine(name), taken, "core_type")) == 1
    if full_cores:
        assert whole_cores(machine(name), taken) == len(per_domain(machine(name), taken, "core"))


def test_s14_ten_whole_cores_of_one_numa_node_without_the_reserved():
    name = "S14-offline-sibling"
    taken = check(name, answer(name))
    assert 25 not in taken
    assert whole_cores(machine(name), taken) == 10


def test_s16_one_after_the_other_in_as_few_l3s_as_possible():
    name = "S16-l3-sequence-10-8-6"
    scenario = scenarios()[name]
    free, spans = parse_cpuset(scenario["available"]), []
    for cpus in scenario["request"]["sequence"]:
        (given,) = answer(name, request(name, cpus=cpus), free=free).allocations
        free -= given.cpuset
        spans.append(len(per_domain(machine(name), given.cpuset, "l3")))
    assert spans == scenario["expected"]["l3_used_sequence"]


def test_s18_two_requests_in_one_numa_node():
    name = "S18-two-requests-one-numa"
    sizes = scenarios()[name]["request"]["requests"]
    requests = [Request(name=f"r{i}", cpus=cpus) for i, cpus in enumerate(sizes)]
    check(name, answer(name, requests, constraints=[Constraint(match="numa")]))


def test_s21_numa_nodes_without_cpus_are_not_among_the_domains():
    topology = machine("S21-cpuless-numa-nodes")
    assert len(topology.numa_nodes) == 34
    assert len(Scorer(Machine(topology)).numa_nodes) == 2


def test_s22_what_live_claims_hold_is_not_given_again():
    scenario = scenarios()["S22-prepare-is-idempotent"]
    held = {claim: parse_cpuset(cpus) for claim, cpus in scenario["policy"]["existing"].items()}
    topology = machine("S22-prepare-is-idempotent")
    document = topology.model_dump(mode="json", by_alias=True) | {"held": held}
    full = Topology.model_validate(document)
    assert solve(full, request("S22-prepare-is-idempotent")).status == "infeasible"
    without_a = Topology.model_validate(document | {"held": {"B": held["B"]}})
    (again,) = solve(without_a, request("S22-prepare-is-idempotent")).allocations
    assert again.cpuset == parse_cpuset(scenario["expected"]["cpuset"])


def test_s24_a_reserved_cpu_keeps_the_shared_pool_filled():
    """The floor of the shared pool is the driver's; the allocator keeps back what it is told to."""
    name = "S24-shared-pool-floor"
    scenario = scenarios()[name]
    kept = sorted(machine(name).allocatable)[-scenario["policy"]["min_shared_cpus"] :]
    free = machine(name).allocatable - set(kept)
    assert answer(name, free=free).status == "infeasible"
    also = answer(name, request(name, cpus=scenario["request"]["also"]["cpus"]), free=free)
    assert (also.status == "optimal") == scenario["expected"]["also"]["feasible"]


def test_s26_any_number_of_runs_gives_one_answer():
    name = "S26-determinism-and-timeout"
    prepared, free = Prepared(machine(name)), parse_cpuset(scenarios()[name]["available"])
    runs = range(scenarios()[name]["policy"]["runs"])
    answers = {solve(prepared, request(name), free=free).allocations[0].cpuset for _ in runs}
    assert len(answers) == 1


@pytest.mark.parametrize("limit", [0.0, 0.001])
def test_s26_without_time_the_greedy_answer_is_given_and_marked(limit):
    name = "S26-determinism-and-timeout"
    assert limit in scenarios()[name]["policy"]["time_limits_s"]
    result, greedy = answer(name, time_limit=limit), answer(name, engine="greedy")
    assert (result.status, result.engine) == ("feasible", "greedy")
    assert [each.cpuset for each in result.allocations] == [each.cpuset for each in greedy.allocations]
    assert any("time limit" in note for note in result.notes)


@pytest.mark.parametrize("quantity", ["2.5", "0", "-1", None, 2.5, 0, -1, True, "4", [], float("nan")])
def test_s27_a_bad_quantity_is_refused_by_name(quantity):
    assert {"2.5", "0", "-1", None} == set(scenarios()["S27-bad-quantities"]["request"]["invalid"])
    with pytest.raises(ValidationError) as caught:
        Request(cpus=quantity)
    assert [error["loc"] for error in caught.value.errors()] == [("cpus",)]


def test_all_scenarios_are_here():
    assert scenarios().keys() == UNIFORM.keys() | ODD.keys()
