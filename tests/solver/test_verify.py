"""Every rule, broken once: verify says so, and says nothing of an answer that keeps them all."""

import pytest

from models import Constraint, DefectError, Request, Topology, parse_cpuset, to_mask
from solver.score import Scorer
from solver.verify import verify, violations
from topologies.graph import Machine
from topologies.synthetic import build

SERVER = build("socket:2 numa:2 l3:2 core:2 cpu:2")
"""2s4n-16c32t. Core g is CPUs g and g + 16; NUMA node n is cores 4n to 4n + 3, its L3s two cores each."""
SERVER = SERVER.model_validate(
    SERVER.model_dump(mode="json", by_alias=True)
    | {"reserved": "15,31", "devices": [{"name": "nic", "local_cpus": "0-3,16-19"}]}
)
HYBRID = Topology.model_validate(
    {"cpus": [{"cpu": cpu, "core": cpu, "core_type": "efficiency" if cpu else "performance"} for cpu in range(4)]}
)

BROKEN = {
    "a size too small": ({"cpus": 3}, "0-1", "2 CPUs instead of 3"),
    "a size too large": ({"cpus": 1}, "0-1", "2 CPUs instead of 1"),
    "CPUs that another claim holds": ({"cpus": 2}, "6-7", "CPUs 7 are not free"),
    "CPUs that are reserved, though called free": ({"cpus": 2}, "14-15", "CPUs 15 are not free"),
    "CPUs that are not online": ({"cpus": 2}, "0,40", "CPUs 40 are not free"),
    "CPUs outside within": ({"cpus": 2, "within": [0, 1]}, "1-2", "CPUs 2 are not in within"),
    "CPUs of other NUMA nodes": (
        {"cpus": 2, "numa_ids": [1]},
        "3-4",
        "CPUs 3 are not in the NUMA nodes named",
    ),
    "too many NUMA nodes": ({"cpus": 2, "numa_max": 1}, "3-4", "2 NUMA nodes instead of at most 1"),
    "a core type that is not there": (
        {"cpus": 1, "core_type": "performance"},
        "0",
        "CPUs 0 are not of core type performance",
    ),
    "part of a core": ({"cpus": 3, "full_cores": True}, "0-1,16", "CPUs 1 are not in whole cores"),
    "an uneven split": (
        {"cpus": 4, "policy": "distributed", "strict": ["policy"]},
        "0-2,4",
        "unevenness is 1, above 0",
    ),
    "too few NUMA nodes": ({"cpus": 2, "numa_min": 2, "strict": True}, "0-1", "floor_shortfall is 1, above 0"),
    "CPUs that are not near": (
        {"cpus": 2, "near": "nic", "strict": ["near"]},
        "3-4",
        "outside_near is 1, above 0",
    ),
    "two sockets": ({"cpus": 2, "align_by_socket": True, "strict": True}, "4,8", "sockets is 2, above 1"),
    "two L3s": ({"cpus": 2, "prefer_l3": True, "strict": True}, "1-2", "l3_caches is 2, above 1"),
    "two CPUs of a core": (
        {"cpus": 2, "threads": "spread", "strict": True},
        "0,16",
        "doubled_threads is 1, above 0",
    ),
}

KEPT = {
    "any CPUs": ({"cpus": 3}, "0,8,20"),
    "CPUs within": ({"cpus": 2, "within": [0, 1]}, "0-1"),
    "CPUs of the NUMA nodes named": ({"cpus": 2, "numa_ids": [1, 2]}, "4,8"),
    "as many NUMA nodes as allowed": ({"cpus": 2, "numa_max": 2}, "3-4"),
    "whole cores": ({"cpus": 4, "full_cores": True}, "0-1,16-17"),
    "an even split but for one CPU": ({"cpus": 3, "policy": "distributed", "strict": True}, "0-1,4"),
    "preferences that are not strict": (
        {"cpus": 3, "policy": "distributed", "numa_min": "all", "near": "nic", "align_by_socket": True},
        "4,24-25",
    ),
    "strict about something else": ({"cpus": 2, "numa_min": 2, "prefer_l3": True, "strict": ["prefer_l3"]}, "0-1"),
    "one CPU of each core": ({"cpus": 2, "threads": "spread", "strict": True}, "0-1"),
}

BETWEEN = {
    "one NUMA node for two": ({"match": "numa"}, "0-1", "2-3", True),
    "two NUMA nodes for two": ({"match": "numa"}, "0-1", "4-5", False),
    "one request in two NUMA nodes": ({"match": "numa"}, "0,4", "5", False),
    "one socket for two": ({"match": "socket"}, "0-1", "4-5", True),
    "two sockets for two": ({"match": "socket"}, "0-1", "8-9", False),
    "one L3 for two": ({"match": "l3"}, "0", "1", True),
    "two L3s for two": ({"match": "l3"}, "1", "2", False),
    "NUMA nodes of their own": ({"distinct": "numa"}, "0,4", "8,12", True),
    "a NUMA node in common": ({"distinct": "numa"}, "0,4", "5,12", False),
    "sockets of their own": ({"distinct": "socket"}, "0", "8", True),
    "a socket in common": ({"distinct": "socket"}, "0", "4", False),
    "L3s of their own": ({"distinct": "l3"}, "0-1", "2-3", True),
    "an L3 in common": ({"distinct": "l3"}, "0,2", "3-4", False),
    "a rule for the other alone": ({"match": "numa", "requests": ["a"]}, "0-1", "4,8", True),
    "a rule for one that breaks it alone": ({"match": "numa", "requests": ["b"]}, "0-1", "4,8", False),
}

FREE = to_mask(range(32)) & ~to_mask({7, 23})


def said(topology, request, taken, free=FREE):
    return list(violations(Scorer(Machine(topology)), free, [request], (), [to_mask(parse_cpuset(taken))]))


@pytest.mark.parametrize(("options", "taken", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named_and_no_other(options, taken, sentence):
    assert said(SERVER, Request(**options), taken) == [f"cpus: {sentence}"]


@pytest.mark.parametrize(("options", "taken"), KEPT.values(), ids=KEPT.keys())
def test_nothing_is_wrong_with(options, taken):
    assert said(SERVER, Request(**options), taken) == []


def test_core_types_are_told_apart():
    wanted = Request(cpus=2, core_type="efficiency")
    assert said(HYBRID, wanted, "1-2") == []
    assert said(HYBRID, wanted, "0-1") == ["cpus: CPUs 0 are not of core type efficiency"]


def test_all_broken_rules_are_named():
    wanted = Request(cpus=3, numa_max=1, within=parse_cpuset("0-2"), full_cores=True)
    assert len(said(SERVER, wanted, "7-8")) == 5


def test_without_any_l3_one_l3_is_not_asked_for():
    assert said(HYBRID, Request(cpus=4, prefer_l3=True, strict=True), "0-3") == []


@pytest.mark.parametrize(("rule", "one", "other", "holds"), BETWEEN.values(), ids=BETWEEN.keys())
def test_rules_between_requests(rule, one, other, holds):
    sets = [parse_cpuset(one), parse_cpuset(other)]
    requests = [Request(name=name, cpus=len(cpus)) for name, cpus in zip("ab", sets, strict=True)]
    found = list(
        violations(Scorer(Machine(SERVER)), FREE, requests, [Constraint(**rule)], [to_mask(cpus) for cpus in sets])
    )
    assert [text.endswith("does not hold") for text in found] == [True] * (not holds)


def test_requests_do_not_share_cpus():
    requests = [Request(name="a", cpus=2), Request(name="b", cpus=2), Request(name="c", cpus=1)]
    masks = [to_mask({0, 1}), to_mask({1, 2}), to_mask({3})]
    assert list(violations(Scorer(Machine(SERVER)), FREE, requests, (), masks)) == ["a and b share CPUs"]


def metrics_of(request, taken):
    return Scorer(Machine(SERVER)).metrics(FREE, request, to_mask(taken))


def test_a_right_answer_passes():
    request = Request(cpus=2)
    verify(Scorer(Machine(SERVER)), FREE, [request], (), [to_mask({0, 16})], metrics_of(request, {0, 16}))


DEFECTS = {
    "metrics that are not its own": ([{0, 16}], {"numa_nodes": 2}, "are really"),
    "a metric too many": ([{0, 16}], {"unevenness": 0}, "are really"),
    "a broken rule": ([{0}], {}, "1 CPUs instead of 2"),
    "an answer to another request": ([{0, 16}, {1, 17}], {}, "1 requests were given 2 CPU sets"),
    "no answer": ([], {}, "1 requests were given 0 CPU sets"),
}


@pytest.mark.parametrize(("taken", "change", "reason"), DEFECTS.values(), ids=DEFECTS.keys())
def test_a_defect_is_raised_for(taken, change, reason):
    request, masks = Request(cpus=2), [to_mask(cpus) for cpus in taken]
    claimed = metrics_of(request, {0, 16}) | change
    with pytest.raises(DefectError, match=reason):
        verify(Scorer(Machine(SERVER)), FREE, [request], (), masks, claimed)
