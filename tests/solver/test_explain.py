"""Why nothing can be placed: minimal clashes, right numbers, the nearest request; by hand and by trying all."""

from functools import cache

import pytest

from models import Constraint, Infeasible, InfeasibleError, Request, Topology, parse_cpuset
from solver.engine import solve
from tests.solver.brute_force import can_be_allowed
from tests.solver.machines import PREFERENCES, joint_case, single_case
from topologies.synthetic import build

SEEDS = range(500)
RULES = ("within", "numa_ids", "core_type", "numa_max", "full_cores")


@cache
def refused():
    """Cases of one request that have no answer, with the explanation."""
    cases = [(case, refusal(case)) for case in map(single_case, SEEDS)]
    return [(case, clash) for case, clash in cases if clash is not None]


def refusal(case):
    ask = {"constraints": case.constraints, "free": case.free, "time_limit": 60.0}
    return solve(case.topology, case.requests, engine="cpsat", **ask).infeasible


def options_of(request):
    """Names of the request's rules, as explanations call them."""
    given = [name for name in RULES if getattr(request, name) != Request.model_fields[name].default]
    return given + [f"strict {name}" for name in PREFERENCES if request.is_strict(name)]


def with_rules(request, kept, cpus=None):
    """The request with these rules only."""
    strict = frozenset(name for name in PREFERENCES if f"strict {name}" in kept)
    dropped = {name: Request.model_fields[name].default for name in RULES if name not in kept}
    return request.model_copy(update=dropped | {"strict": strict, "cpus": cpus or request.cpus})


def placeable(case, request):
    return can_be_allowed(case.topology, case.free, [request])


def largest(case, request, sizes):
    """The first of the sizes at which the request can be placed, or ``None``."""
    return next((n for n in sizes if placeable(case, request.model_copy(update={"cpus": n}))), None)


def test_there_are_explanations_of_every_kind():
    assert len(refused()) > 80
    kinds = {rule.name for _, clash in refused() for rule in clash.rules}
    assert kinds >= {"within", "numa_ids", "core_type", "numa_max", "full_cores"}
    assert kinds >= {f"strict {name}" for name in PREFERENCES}
    assert {len(clash.rules) for _, clash in refused()} >= {1, 2}


def test_the_rules_named_clash():
    for case, clash in refused():
        (request,) = case.requests
        names = {rule.name for rule in clash.rules}
        assert names <= {"cpus", *options_of(request)}, case.seed
        assert not placeable(case, with_rules(request, names)), case.seed


def test_without_any_one_of_the_rules_the_others_can_be_met():
    wrong = []
    for case, clash in refused():
        names = {rule.name for rule in clash.rules}
        for name in names - {"cpus"}:
            if not placeable(case, with_rules(case.requests[0], names - {name})):
                wrong.append((case.seed, name, names))
    assert wrong == []


def test_a_size_is_named_only_where_it_is_too_large_for_the_machine():
    for case, clash in refused():
        if any(rule.name == "cpus" for rule in clash.rules):
            assert [rule.name for rule in clash.rules] == ["cpus"]
            assert case.requests[0].cpus > len(case.free)


def test_the_numbers_are_right():
    for case, clash in refused():
        for rule in clash.rules:
            (request,) = case.requests
            most = largest(case, with_rules(request, {rule.name}), range(len(case.free), 0, -1)) or 0
            assert (rule.request, rule.asked, rule.available) == (request.name, request.cpus, most), case.seed
            assert f"{request.cpus} CPU" in rule.text, case.seed
            assert f"{most} CPU" in rule.text, case.seed


def test_the_nearest_request_is_the_nearest():
    for case, clash in refused():
        assert said_nearest(clash) == right_nearest(case, clash), case.seed


def said_nearest(clash: Infeasible):
    near = clash.nearest
    return near and (near.option, near.instead)


def right_nearest(case, clash):
    """The largest smaller size, else the smallest larger, else an option dropped: whichever one is named first."""
    (request,) = case.requests
    size = largest(case, request, range(request.cpus - 1, 0, -1))
    size = size or largest(case, request, range(request.cpus + 1, len(case.free) + 1))
    if size:
        return "cpus", str(size)
    names = options_of(request)
    helping = [name for name in names if placeable(case, with_rules(request, set(names) - {name}))]
    said = clash.nearest and clash.nearest.option
    return (said if said in helping else helping[0], "left out") if helping else None


SERVER = build("socket:2 numa:2 l3:2 core:2 cpu:2")
"""2s4n-16c32t. Core g is CPUs g and g + 16; NUMA node n is cores 4n to 4n + 3, its L3s two cores each."""
SMALL = build("numa:2 core:2 cpu:2")
"""NUMA nodes 0-1,4-5 | 2-3,6-7; core g is CPUs g and g + 4."""
NIC = Topology.model_validate(
    SERVER.model_dump(mode="json", by_alias=True) | {"devices": [{"name": "nic", "local_cpus": "0-3"}]}
)

TEXTS = {
    "more than the machine has": (
        (SMALL, "0-7", {"cpus": 9}),
        "9 CPUs requested, 8 CPUs free. Request 'cpus' would be placed with cpus 8",
    ),
    "whole cores that are not whole": (
        (SMALL, "1-6", {"cpus": 6, "full_cores": True}),
        "6 CPUs in whole cores requested, 4 CPUs in whole cores free. Request 'cpus' would be placed with cpus 4",
    ),
    "an odd number in whole cores": (
        (SMALL, "0-7", {"cpus": 5, "full_cores": True}),
        "5 CPUs in whole cores requested, 8 CPUs in whole cores free, possible: 4 and 6. "
        "Request 'cpus' would be placed with cpus 4",
    ),
    "more than the machine has, which whole cores do not change": (
        (SMALL, "1-7", {"cpus": 8, "full_cores": True}),
        "8 CPUs requested, 7 CPUs free. Request 'cpus' would be placed with cpus 6",
    ),
    "less than one whole core": (
        (SMALL, "0-7", {"cpus": 1, "full_cores": True}),
        "1 CPU in whole cores requested, 8 CPUs in whole cores free, possible: 2. "
        "Request 'cpus' would be placed with cpus 2",
    ),
    "a CPU list that is too small": (
        (SMALL, "0-1,4", {"cpus": 3, "within": parse_cpuset("0-3")}),
        "3 CPUs within 0-3 requested, 2 CPUs within 0-3 free. Request 'cpus' would be placed with cpus 2",
    ),
    "a NUMA node that is too small": (
        (SMALL, "0-7", {"cpus": 6, "numa_ids": {1}}),
        "6 CPUs in NUMA node 1 requested, 4 CPUs in NUMA node 1 free. Request 'cpus' would be placed with cpus 4",
    ),
    "too few NUMA nodes allowed": (
        (SERVER, "0-31", {"cpus": 17, "numa_max": 2}),
        "17 CPUs in at most 2 NUMA nodes requested, 16 CPUs in at most 2 NUMA nodes free. "
        "Request 'cpus' would be placed with cpus 16",
    ),
    "a core type that is not there": (
        (SMALL, "0-7", {"cpus": 2, "core_type": "efficiency"}),
        "2 CPUs in efficiency cores requested, 0 CPUs in efficiency cores free. "
        "Request 'cpus' would be placed with core_type left out",
    ),
    "no even split": (
        (SMALL, "0-1,2-7", {"cpus": 7, "policy": "distributed", "strict": True, "full_cores": True}),
        "7 CPUs in whole cores requested, 8 CPUs in whole cores free, possible: 6 and 8. "
        "Request 'cpus' would be placed with cpus 6",
    ),
    "shares that cannot be even": (
        (SMALL, "0,2-3,6-7", {"cpus": 5, "policy": "distributed", "strict": ["policy"]}),
        "5 CPUs in even shares requested, 4 CPUs in even shares free. Request 'cpus' would be placed with cpus 4",
    ),
    "too far from a device": (
        (NIC, "1-31", {"cpus": 4, "near": "nic", "strict": ["near"]}),
        "4 CPUs near nic requested, 3 CPUs near nic free. Request 'cpus' would be placed with cpus 3",
    ),
    "more than a socket": (
        (SERVER, "0-31", {"cpus": 17, "align_by_socket": True, "strict": True}),
        "17 CPUs in one socket requested, 16 CPUs in one socket free. Request 'cpus' would be placed with cpus 16",
    ),
    "more than an L3": (
        (SERVER, "0-31", {"cpus": 5, "prefer_l3": True, "strict": True}),
        "5 CPUs in one L3 requested, 4 CPUs in one L3 free. Request 'cpus' would be placed with cpus 4",
    ),
    "more than cores": (
        (SMALL, "0-7", {"cpus": 5, "threads": "spread", "strict": True}),
        "5 CPUs on cores of their own requested, 4 CPUs on cores of their own free. "
        "Request 'cpus' would be placed with cpus 4",
    ),
    "a floor above the machine": (
        (SMALL, "0-7", {"cpus": 4, "numa_min": 3, "strict": True}),
        "4 CPUs in at least 3 NUMA nodes requested, 0 CPUs in at least 3 NUMA nodes free. "
        "Request 'cpus' would be placed with strict numa_min left out",
    ),
    "two rules that only clash together": (
        (SERVER, "0-31", {"cpus": 8, "numa_ids": {0}, "prefer_l3": True, "align_by_socket": True, "numa_max": 1}),
        None,
    ),
    "whole cores within halves of them": (
        (SMALL, "0-7", {"cpus": 2, "within": parse_cpuset("0-3"), "full_cores": True}),
        "2 CPUs within 0-3 requested, 4 CPUs within 0-3 free; "
        "2 CPUs in whole cores requested, 8 CPUs in whole cores free; these cannot all be met together. "
        "Request 'cpus' would be placed with within left out",
    ),
}


@pytest.mark.parametrize(("given", "text"), TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("engine", ["auto", "cpsat", "greedy"])
def test_the_words_of_an_explanation(given, text, engine):
    topology, free, options = given
    result = solve(topology, Request(**options), free=parse_cpuset(free), engine=engine)
    assert (result.infeasible and str(result.infeasible)) == text
    assert (result.status == "infeasible") == (text is not None)


def test_an_infeasible_result_is_raised_only_when_allocations_are_required():
    result = solve(SMALL, Request(cpus=9))
    assert (result.allocations, result.metrics, result.bounds) == ((), {}, {})
    with pytest.raises(InfeasibleError, match="9 CPUs requested, 8 CPUs free") as caught:
        result.require()
    assert caught.value.infeasible == result.infeasible


def test_nothing_free_has_no_nearest_request():
    clash = solve(SMALL, Request(cpus=1), free=[]).infeasible
    assert str(clash) == "1 CPU requested, 0 CPUs free"
    assert clash.nearest is None


def test_a_request_that_breaks_a_rule_between_requests_alone_is_named_with_its_numbers():
    requests = [Request(name="a", cpus=5), Request(name="b", cpus=1)]
    clash = solve(SERVER, requests, constraints=[Constraint(match="l3")]).infeasible
    assert {rule.request for rule in clash.rules} >= {"a"}
    assert "5 CPUs" in str(clash)


def test_the_nearest_may_be_to_leave_out_a_rule_between_requests():
    requests = [Request(name=name, cpus=1) for name in "abc"]
    clash = solve(SMALL, requests, constraints=[Constraint(distinct="numa")]).infeasible
    assert str(clash.nearest) == "The claim would be placed with distinct left out"


@cache
def refused_together():
    cases = [(case, refusal(case)) for case in map(joint_case, range(120))]
    return [(case, clash) for case, clash in cases if clash is not None and any(r.request for r in clash.rules)]


def left_over(case, rules):
    """The requests and constraints of a case that an explanation names: all of a request's rules, or some."""
    by_request = {}
    for rule in rules:
        by_request.setdefault(rule.request, set()).add(rule.name)
    requests = [with_rules(r, by_request[r.name]) for r in case.requests if r.name in by_request]
    names = {request.name for request in requests}
    kinds = [rule.name for rule in rules if not rule.request]
    constraints = [rule for rule in case.constraints if ("match" if rule.match else "distinct") in kinds]
    return requests, [among(rule, names) for rule in constraints if among(rule, names)]


def among(rule, names):
    if not rule.requests:
        return rule
    left = tuple(name for name in rule.requests if name in names)
    says_something = len(left) > (0 if rule.match else 1)
    return Constraint(match=rule.match, distinct=rule.distinct, requests=left) if says_something else None


def test_what_is_named_of_a_joint_claim_clashes():
    assert len(refused_together()) > 15
    for case, clash in refused_together():
        assert not can_be_allowed(case.topology, case.free, *left_over(case, clash.rules)), case.seed


def test_without_any_one_rule_of_a_joint_claim_the_others_can_be_met():
    wrong = []
    for case, clash in refused_together():
        kinds = [rule.match is None for rule in case.constraints]
        if len(kinds) == len(set(kinds)):
            wrong += [(case.seed, rule) for rule in clash.rules if not can_be_met_without(case, clash, rule)]
    assert wrong == []


def can_be_met_without(case, clash, rule):
    if rule.name == "cpus":
        left = [other for other in clash.rules if other.request != rule.request]
    else:
        left = [other for other in clash.rules if other != rule]
    return can_be_allowed(case.topology, case.free, *left_over(case, left))


def test_the_nearest_of_a_joint_claim_can_be_placed():
    checked = 0
    for case, clash in refused_together():
        if clash.nearest is not None:
            checked += 1
            requests = [nearer(request, clash.nearest) for request in case.requests]
            kind = None if clash.nearest.request else clash.nearest.option
            rules = [rule for rule in case.constraints if kind is None or getattr(rule, kind) is None]
            assert can_be_allowed(case.topology, case.free, requests, rules), (case.seed, clash.nearest)
    assert checked > 5


def nearer(request, nearest):
    if request.name != nearest.request:
        return request
    if nearest.option == "cpus":
        return request.model_copy(update={"cpus": int(nearest.instead)})
    return with_rules(request, set(options_of(request)) - {nearest.option})
