"""Metrics worked out by hand, the order in which they count, the tie rule, and the definitions word by word."""

from random import Random

import pytest

from models import Request, Topology, format_cpuset, parse_cpuset, to_mask
from solver.score import Scorer, joint_order, slots
from tests.solver.definitions import defined_joint, defined_metrics
from tests.solver.machines import single_case
from topologies.graph import Machine
from topologies.synthetic import build


def document(cpus, **more):
    """A machine from rows ``(CPUs, core, where)``: the CPUs of each core."""
    rows = [{"cpu": cpu, "core": core, **where} for listed, core, where in cpus for cpu in parse_cpuset(listed)]
    numa = sorted({row["numa"] for row in rows if row.get("numa") is not None})
    return Topology.model_validate({"cpus": rows, "numa_nodes": [{"id": i} for i in numa]} | more)


FOUR_NODES = build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""2s4n-16c32t. Core g is CPUs g and g + 16; NUMA node n, with one L3, is cores 4n to 4n + 3.

Distances are 12 within a socket and 21 across.
"""
TWO_L3S = build("socket:1 numa:1 l3:2 core:2 cpu:2")
"""L3s 0-1,4-5 | 2-3,6-7; core g is CPUs g and g + 4."""
SNC = document(
    [(str(n), n, {"numa": n // 4, "l3": 0}) for n in range(8)],
    numa_nodes=[{"id": 0, "distances": {0: 10, 1: 12}}, {"id": 1, "distances": {0: 15, 1: 10}}],
)
"""One L3 over the NUMA nodes 0-3 | 4-7, no siblings; it is farther from the second to the first than back."""
HYBRID = document(
    [
        ("0-3", 0, {"numa": 0, "core_type": "performance"}),
        ("4-5", 1, {"numa": 0, "core_type": "performance"}),
        ("6-7", 2, {"numa": 1, "core_type": "performance"}),
        ("8", 3, {"numa": 1, "core_type": "efficiency"}),
    ]
)
"""Cores of four, two, two and one CPUs, two in each NUMA node; neither L3s nor distances."""
NO_NUMA = document([(f"{2 * n}-{2 * n + 1}", n, {"socket": n // 2}) for n in range(4)])
"""Sockets 0-3 | 4-7 and no NUMA; siblings are adjacent."""
NODE_OVER_SOCKETS = build("numa:2 socket:2 core:2 cpu:1")
"""Sockets 0-1 | 2-3 in NUMA node 0, 4-5 | 6-7 in NUMA node 1; no siblings."""
PARTLY_L3 = document([(str(n), n, {"numa": n // 4, "l3": 7 if n < 2 else None}) for n in range(8)])
"""CPUs 0-1 have an L3; 2-3 in NUMA node 0 and 4-7 in NUMA node 1 count as one L3 each."""
RESERVED = FOUR_NODES.model_copy(update={"reserved": parse_cpuset("0,12-15,28-31")})
"""All of NUMA node 3 is reserved, and CPU 0."""
NIC = FOUR_NODES.model_validate(
    FOUR_NODES.model_dump(mode="json", by_alias=True)
    | {"devices": [{"name": "nic", "local_cpus": "0-1,16-17"}, {"name": "gpu", "numa": 2}]}
)

ONE = {
    "two whole cores of one NUMA node": (
        (FOUR_NODES, "0-31", {}, "0-1,16-17"),
        # 8 CPUs in the NUMA node and its L3, 4 taken
        "numa_nodes 1, sockets 1, numa_distance 0, core_types 1, cores 2, l3_caches 1, "
        "numa_leftover 4, l3_leftover 4, split_cores 0",
    ),
    "uneven shares in two sockets": (
        (FOUR_NODES, "0-31", {"policy": "distributed"}, "0-2,16,8,24"),
        # shares 4 and 2: 4 - 2 - 1; distance 21 each way; balance 4² + 8² + 6² + 8²; CPUs 17 and 18 are stranded
        "unevenness 1, numa_nodes 2, sockets 2, numa_distance 42, core_types 1, cores 4, l3_caches 2, "
        "numa_balance 180, l3_leftover 10, split_cores 2",
    ),
    "fewer sockets first, three NUMA nodes in two": (
        (FOUR_NODES, "0-31", {"align_by_socket": True}, "0,4,8"),
        # 0-1 at 12, 0-2 and 1-2 at 21, both ways: 2 * (12 + 21 + 21); 3 * (8 - 1) left
        "sockets 2, numa_nodes 3, numa_distance 108, core_types 1, cores 3, l3_caches 3, "
        "numa_leftover 21, l3_leftover 21, split_cores 3",
    ),
    "all NUMA nodes wanted, of which one has nothing allocatable": (
        (RESERVED, "1-11,16-27", {"numa_min": "all", "fit": "loose"}, "1,17"),
        # 3 nodes - 1; free 7, 8, 8, 0: balance 5² + 8² + 8² + 0²; L3 7 - 2
        "floor_shortfall 2, numa_nodes 1, sockets 1, numa_distance 0, core_types 1, cores 1, l3_caches 1, "
        "numa_balance 153, l3_leftover 5, split_cores 0",
    ),
    "a number of NUMA nodes wanted and more given": (
        (FOUR_NODES, "0-31", {"numa_min": 1}, "0,4"),
        "floor_shortfall 0, numa_nodes 2, sockets 1, numa_distance 24, core_types 1, cores 2, l3_caches 2, "
        "numa_leftover 14, l3_leftover 14, split_cores 2",
    ),
    "near the CPUs that a device names": (
        (NIC, "0-31", {"near": "nic"}, "1-3"),
        # local are 0-1,16-17: 2 and 3 are outside
        "outside_near 2, numa_nodes 1, sockets 1, numa_distance 0, core_types 1, cores 3, l3_caches 1, "
        "numa_leftover 5, l3_leftover 5, split_cores 3",
    ),
    "near the NUMA node of a device": (
        (NIC, "0-31", {"near": "gpu"}, "7-8"),
        "outside_near 1, numa_nodes 2, sockets 2, numa_distance 42, core_types 1, cores 2, l3_caches 2, "
        "numa_leftover 14, l3_leftover 14, split_cores 2",
    ),
    "near the NUMA nodes of a CPU list": (
        (NIC, "0-31", {"near": "5,8"}, "4,9,12"),
        # near are NUMA nodes 1 and 2; nodes 1, 2, 3: 2 * (21 + 21 + 12)
        "outside_near 1, numa_nodes 3, sockets 2, numa_distance 108, core_types 1, cores 3, l3_caches 3, "
        "numa_leftover 21, l3_leftover 21, split_cores 3",
    ),
    "fewer L3s first; a core with one free CPU is not split": (
        (TWO_L3S, "0-3,5-7", {"prefer_l3": True}, "0-2"),
        # NUMA node 7 - 3; L3s {0, 1, 5} - 2 and {2, 3, 6, 7} - 1; 5 and 6 are stranded
        "numa_nodes 1, sockets 1, numa_distance 0, core_types 1, l3_caches 2, cores 3, "
        "numa_leftover 4, l3_leftover 4, split_cores 2",
    ),
    "one CPU per core wanted": (
        (TWO_L3S, "0-7", {"threads": "spread"}, "0-1,4-6"),
        # cores 0 and 1 twice, core 2 once; stranded CPUs do not count
        "numa_nodes 1, sockets 1, numa_distance 0, core_types 1, doubled_threads 2, l3_caches 2, "
        "numa_leftover 3, l3_leftover 3",
    ),
    "an L3 over two NUMA nodes, distances that differ by direction": (
        (SNC, "0-6", {}, "0,1,4"),
        # 12 + 15; 7 free - 3; one L3 for all
        "numa_nodes 2, sockets 1, numa_distance 27, core_types 1, cores 3, l3_caches 1, "
        "numa_leftover 4, l3_leftover 4, split_cores 0",
    ),
    "whole cores may be as uneven as the largest that is free": (
        (HYBRID, "0-8", {"policy": "distributed", "full_cores": True}, "0-5,8"),
        # shares 6 and 1, unit 4: 6 - 1 - 4; distance unknown: 20 + 20; balance 0² + 2²
        "unevenness 1, numa_nodes 2, sockets 1, numa_distance 40, core_types 2, cores 3, l3_caches 0, "
        "numa_balance 4, l3_leftover 0, split_cores 0",
    ),
    "a core that is not free as a whole sets no unit": (
        (HYBRID, "1-8", {"policy": "distributed", "full_cores": True}, "4-5,6-8"),
        # shares 2 and 3, unit 2; balance 3² + 0²
        "unevenness 0, numa_nodes 2, sockets 1, numa_distance 40, core_types 2, cores 3, l3_caches 0, "
        "numa_balance 9, l3_leftover 0, split_cores 0",
    ),
    "without NUMA the machine is one NUMA node": (
        (NO_NUMA, "0-7", {"policy": "distributed"}, "0-4"),
        # balance 3²; 5 is stranded
        "unevenness 0, numa_nodes 1, sockets 2, numa_distance 0, core_types 1, cores 3, l3_caches 0, "
        "numa_balance 9, l3_leftover 0, split_cores 1",
    ),
    "a NUMA node over two sockets": (
        (NODE_OVER_SOCKETS, "0-7", {}, "1,2"),
        "numa_nodes 1, sockets 2, numa_distance 0, core_types 1, cores 2, l3_caches 0, "
        "numa_leftover 2, l3_leftover 0, split_cores 0",
    ),
    "CPUs without an L3 where others have one": (
        (PARTLY_L3, "0-7", {}, "1-3,4"),
        # L3s {0, 1} - 1, {2, 3} - 2, {4..7} - 1
        "numa_nodes 2, sockets 1, numa_distance 40, core_types 1, cores 4, l3_caches 3, "
        "numa_leftover 4, l3_leftover 4, split_cores 0",
    ),
}

TOGETHER = {
    "packed twice": (
        [({}, "0,16"), ({}, "1,4")],
        # sums but for the last three: NUMA nodes 8 - 3 and 8 - 1, L3s likewise, 17 and 20 stranded
        "numa_nodes 3, sockets 2, numa_distance 24, core_types 2, cores 3, l3_caches 3, "
        "numa_leftover 12, l3_leftover 12, split_cores 2",
    ),
    "siblings shared out between two requests are not stranded": (
        [({}, "0"), ({}, "16")],
        "numa_nodes 2, sockets 2, numa_distance 0, core_types 2, cores 2, l3_caches 2, "
        "numa_leftover 6, l3_leftover 6, split_cores 0",
    ),
    "packed and distributed": (
        [({}, "0,16"), ({"policy": "distributed"}, "1-3,4")],
        # 3 - 1 - 1 of the second alone; leftover (8 - 5) + (8 - 1), balance 3² + 7² + 8² + 8²; 17-19, 20 stranded
        "unevenness 1, numa_nodes 3, sockets 2, numa_distance 24, core_types 2, cores 5, l3_caches 3, "
        "numa_leftover 10, numa_balance 186, l3_leftover 10, split_cores 4",
    ),
    "one prefers L3s, one spreads threads": (
        [({"prefer_l3": True}, "0-1"), ({"threads": "spread"}, "4,20,8")],
        # slot 8: 1 L3 + 1 doubled thread; slot 9: 2 cores + 2 L3s; 16 and 17 are stranded by the first alone
        "numa_nodes 3, sockets 3, numa_distance 42, core_types 2, l3_caches+doubled_threads 2, cores+l3_caches 4, "
        "numa_leftover 19, l3_leftover 19, split_cores 2",
    ),
    "each with a preference that the other lacks": (
        [({"numa_min": 2}, "0"), ({"near": "0", "align_by_socket": True}, "4,8")],
        # slot 4: 1 NUMA node + 2 sockets; slot 5: 1 socket + 2 NUMA nodes
        "floor_shortfall 1, outside_near 2, numa_nodes+sockets 3, sockets+numa_nodes 3, numa_distance 42, "
        "core_types 2, cores 3, l3_caches 3, numa_leftover 21, l3_leftover 21, split_cores 3",
    ),
}


def asked(options, taken, name="cpus"):
    return Request(name=name, cpus=len(parse_cpuset(taken)), **options)


def listed(metrics):
    return ", ".join(f"{name} {value}" for name, value in metrics.items())


@pytest.mark.parametrize(("given", "expected"), ONE.values(), ids=ONE.keys())
def test_metrics_of_one_request(given, expected):
    topology, free, options, taken = given
    metrics = Scorer(Machine(topology)).metrics(mask(free), asked(options, taken), mask(taken))
    assert listed(metrics) == expected


@pytest.mark.parametrize(("given", "expected"), TOGETHER.values(), ids=TOGETHER.keys())
def test_metrics_of_requests_together(given, expected):
    requests = [asked(options, taken, f"r{i}") for i, (options, taken) in enumerate(given)]
    metrics = Scorer(Machine(FOUR_NODES)).joint(mask("0-31"), requests, [mask(taken) for _, taken in given])
    assert listed(metrics) == expected


def mask(text):
    return to_mask(parse_cpuset(text))


FULL_ORDER = {
    "packed": (
        {},
        "- - - numa_nodes sockets numa_distance core_types cores l3_caches numa_leftover l3_leftover split_cores",
    ),
    "distributed": (
        {"policy": "distributed"},
        "unevenness - - numa_nodes sockets numa_distance core_types cores l3_caches "
        "numa_balance l3_leftover split_cores",
    ),
    "packed into the emptiest": (
        {"fit": "loose"},
        "- - - numa_nodes sockets numa_distance core_types cores l3_caches numa_balance l3_leftover split_cores",
    ),
    "distributed and tight is balanced all the same": (
        {"policy": "distributed", "fit": "tight"},
        "unevenness - - numa_nodes sockets numa_distance core_types cores l3_caches "
        "numa_balance l3_leftover split_cores",
    ),
    "every preference": (
        {"numa_min": "all", "near": "0", "align_by_socket": True, "prefer_l3": True},
        "- floor_shortfall outside_near sockets numa_nodes numa_distance core_types l3_caches cores "
        "numa_leftover l3_leftover split_cores",
    ),
    "spread threads": (
        {"threads": "spread"},
        "- - - numa_nodes sockets numa_distance core_types doubled_threads l3_caches numa_leftover l3_leftover -",
    ),
    "spread threads, L3s first": (
        {"threads": "spread", "prefer_l3": True},
        "- - - numa_nodes sockets numa_distance core_types l3_caches doubled_threads numa_leftover l3_leftover -",
    ),
}


@pytest.mark.parametrize(("options", "expected"), FULL_ORDER.values(), ids=FULL_ORDER.keys())
def test_the_order_of_metrics(options, expected):
    assert " ".join(name or "-" for name in slots(Request(cpus=1, **options))) == expected


def test_metrics_of_one_request_together_are_its_own():
    request = Request(cpus=2, policy="distributed", numa_min=2)
    scorer = Scorer(Machine(FOUR_NODES))
    together = scorer.joint(mask("0-31"), [request], [mask("0,4")])
    assert list(together.items()) == list(scorer.metrics(mask("0-31"), request, mask("0,4")).items())


TIES = {
    "the first NUMA node, then the first two, then the second": (FOUR_NODES, "0,16 | 0,4 | 0,8 | 4,20"),
    "one NUMA node more comes after its beginning": (FOUR_NODES, "0-1,4 | 0,4,8 | 0,8-9"),
    "sockets where NUMA nodes do not tell": (NODE_OVER_SOCKETS, "0-1 | 0,2 | 2-3 | 4-5"),
    "L3s where they do not nest in NUMA nodes": (
        document([(str(n), n, {"numa": n // 4, "l3": n % 2}) for n in range(8)]),
        "0,4 | 2,6 | 0,5 | 1,5",
    ),
    "more in the first NUMA node": (FOUR_NODES, "0-2,4 | 0-1,4-5 | 0,4-6"),
    "more in the first L3": (TWO_L3S, "0-1,4-5 | 0-2,4 | 2-3,6-7"),
    "more of the first core, then lower numbers": (TWO_L3S, "0,4 | 0-1 | 1,4 | 1,5"),
    "lower numbers of the same core": (NO_NUMA, "0,2 | 0,3 | 1,2 | 1,3"),
    "domains are ordered by lowest CPU, not by id": (
        document([("4", 0, {"numa": 0}), ("1", 9, {"numa": 7}), ("2", 4, {"numa": 3})]),
        "1 | 2 | 4",
    ),
}


@pytest.mark.parametrize(("topology", "order"), TIES.values(), ids=TIES.keys())
def test_the_tie_rule_prefers(topology, order):
    wanted = [format_cpuset(parse_cpuset(text)) for text in order.split(" | ")]
    keys = {text: Scorer(Machine(topology)).tie_key(mask(text)) for text in wanted}
    assert sorted(wanted, key=lambda text: keys[text]) == wanted
    assert len(set(keys.values())) == len(wanted)


@pytest.mark.parametrize("chunk", range(4))
def test_the_metrics_are_what_their_definitions_say(chunk):
    for seed in range(chunk * 100, chunk * 100 + 100):
        case, rng = single_case(seed), Random(seed)
        taken = [cpu for cpu in sorted(case.free) if rng.random() < 0.5]
        if taken:
            found = Scorer(Machine(case.topology)).metrics(to_mask(case.free), case.requests[0], to_mask(taken))
            defined = defined_metrics(case.topology, case.free, case.requests[0], set(taken))
            assert found == {name: defined[name] for name in found}, seed


def test_the_metrics_of_requests_together_are_what_their_definitions_say():
    checked = 0
    for seed in range(200):
        rng, case = Random(seed), single_case(seed)
        requests = [case.requests[0], single_case(seed + 1000 * 8).requests[0].model_copy(update={"near": None})]
        halves = [{cpu for cpu in sorted(case.free) if rng.random() < 0.4}]
        halves.append({cpu for cpu in sorted(case.free - halves[0]) if rng.random() < 0.8})
        if all(halves):
            checked += 1
            compare_together(case, requests, halves)
    assert checked > 150


def compare_together(case, requests, halves):
    found = Scorer(Machine(case.topology)).joint(to_mask(case.free), requests, [to_mask(half) for half in halves])
    defined = defined_joint(case.topology, case.free, requests, halves)
    plain = {name: value for name, value in found.items() if "+" not in name and name != "split_cores"}
    assert {name: summed(name, requests, case, halves, defined) for name in plain} == plain, case.seed
    assert list(found) == [metric.name for metric in joint_order(requests)]


def summed(name, requests, case, halves, defined):
    """A metric counts for the requests whose options count it; leftovers count for all."""
    if name in ("numa_leftover", "numa_balance", "l3_leftover"):
        return defined[name]
    each = zip(requests, halves, strict=True)
    return sum(defined_metrics(case.topology, case.free, r, half)[name] for r, half in each if name in slots(r))
