"""Requests, rules between them and claims: which are read, which are refused and why."""

import pytest
from pydantic import ValidationError

from models import Claim, Constraint, Request

DEFAULTS = {
    "name": "cpus",
    "policy": "packed",
    "full_cores": False,
    "threads": "pack",
    "prefer_l3": False,
    "align_by_socket": False,
    "numa_min": None,
    "numa_max": None,
    "numa_ids": None,
    "fit": "tight",
    "core_type": "any",
    "near": None,
    "within": None,
    "strict": False,
}

READ = {
    "all options that go together": {
        "name": "data-plane",
        "policy": "distributed",
        "full_cores": True,
        "prefer_l3": True,
        "align_by_socket": True,
        "numa_min": 2,
        "numa_max": 4,
        "numa_ids": [0, 1],
        "fit": "loose",
        "core_type": "performance",
        "near": "eth0",
        "within": "0-7",
        "strict": ["policy", "near"],
    },
    "a floor of all NUMA nodes": {"numa_min": "all"},
    "all under a ceiling": {"numa_min": "all", "numa_max": 2},
    "a floor that is the ceiling": {"numa_min": 2, "numa_max": 2},
    "a floor of all that are named": {"numa_min": 2, "numa_ids": [3, 7]},
    "spread threads": {"threads": "spread", "strict": True},
    "within as large as the request": {"within": "0-3"},
}

REFUSED = {
    "no CPU": ({"cpus": 0}, "cpus", "greater than or equal to 1"),
    "fewer than none": ({"cpus": -1}, "cpus", "greater than or equal to 1"),
    "half a CPU": ({"cpus": 2.5}, "cpus", "valid integer"),
    "a whole number as a float": ({"cpus": 2.0}, "cpus", "valid integer"),
    "a number as a text": ({"cpus": "4"}, "cpus", "valid integer"),
    "a truth": ({"cpus": True}, "cpus", "valid integer"),
    "nothing": ({"cpus": None}, "cpus", "valid integer"),
    "more than any machine has": ({"cpus": 70_000}, "cpus", "less than or equal to 65536"),
    "an unknown policy": ({"policy": "spread"}, "policy", "'packed' or 'distributed'"),
    "an unknown fit": ({"fit": "best"}, "fit", "'tight' or 'loose'"),
    "an unknown core type": ({"core_type": "big"}, "core_type", "'any', 'performance' or 'efficiency'"),
    "an unknown option": ({"full_pcpus": True}, "full_pcpus", "Extra inputs"),
    "an unknown preference": ({"strict": ["fit"]}, "strict", "the preferences are: policy, numa_min"),
    "a preference that is no text": ({"strict": [["policy"]]}, "strict", "preferences: policy, numa_min"),
    "a number of preferences": ({"strict": 1}, "strict", "expected true, false or a list of preferences"),
    "a floor of none": ({"numa_min": 0}, "numa_min", "expected a number of NUMA nodes from 1 to 4096, or all"),
    "a floor of some": (
        {"numa_min": "some"},
        "numa_min",
        "expected a number of NUMA nodes from 1 to 4096, or all",
    ),
    "a ceiling of none": ({"numa_max": 0}, "numa_max", "greater than or equal to 1"),
    "a ceiling of all": ({"numa_max": "all"}, "numa_max", "valid integer"),
    "a name with a space": ({"name": "my cpus"}, "name", "no spaces"),
    "no name": ({"name": ""}, "name", "1 to 253 characters"),
    "a name without end": ({"name": "x" * 254}, "name", "1 to 253 characters"),
    "a CPU list that is none": ({"within": "0-x"}, "within", "'0-x' is not a CPU number"),
    "spread threads in whole cores": (
        {"threads": "spread", "full_cores": True},
        "",
        "threads: spread and full_cores contradict each other; drop one",
    ),
    "a floor above the ceiling": ({"numa_min": 3, "numa_max": 2}, "", "numa_min 3 is above numa_max 2"),
    "a floor above what is named": (
        {"numa_min": 3, "numa_ids": [0, 1]},
        "",
        "numa_min 3 is above the number of numa_ids 2",
    ),
    "no NUMA node named": ({"numa_ids": []}, "", "numa_ids is empty; leave it out to allow all NUMA nodes"),
    "fewer CPUs named than asked": ({"within": "0-2"}, "", "4 CPUs cannot come from within, which names 3"),
}


@pytest.mark.parametrize("options", READ.values(), ids=READ.keys())
def test_options_that_go_together_are_read_and_written(options):
    request = Request.model_validate({"cpus": 4} | options)
    assert Request.model_validate_json(request.model_dump_json()) == request


def test_the_least_that_is_asked_for_is_a_number():
    assert Request(cpus=1).model_dump(exclude={"cpus"}) == DEFAULTS


@pytest.mark.parametrize(("options", "place", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_cannot_be_are_refused_with_place_and_reason(options, place, reason):
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"cpus": 4} | options)
    errors = caught.value.errors()
    assert {str(error["loc"][0]) if error["loc"] else "" for error in errors} == {place}
    assert reason in " ".join(error["msg"] for error in errors)


def test_a_request_is_a_value():
    request = Request(cpus=2)
    assert request == Request(cpus=2)
    with pytest.raises(ValidationError, match="frozen"):
        request.cpus = 3


SET = {
    "policy": {"policy": "distributed"},
    "numa_min": {"numa_min": "all"},
    "near": {"near": "0"},
    "align_by_socket": {"align_by_socket": True},
    "prefer_l3": {"prefer_l3": True},
    "threads": {"threads": "spread"},
}


@pytest.mark.parametrize("preference", SET)
def test_a_preference_is_strict_if_it_is_set_and_named_or_all_are_strict(preference):
    def strict(options, which):
        return Request(cpus=1, strict=which, **options).is_strict(preference)

    others = frozenset(SET) - {preference}
    assert strict(SET[preference], True)
    assert strict(SET[preference], {preference})
    assert not strict(SET[preference], False)
    assert not strict(SET[preference], others)
    assert not strict({}, True)
    assert not strict({}, {preference})


BETWEEN = {
    "neither": ({}, "give exactly one of match and distinct"),
    "both": ({"match": "numa", "distinct": "numa"}, "give exactly one of match and distinct"),
    "an unknown level": ({"match": "die"}, "'numa', 'socket' or 'l3'"),
    "an unknown key": ({"match": "numa", "level": "l3"}, "Extra inputs"),
}


@pytest.mark.parametrize(("given", "reason"), BETWEEN.values(), ids=BETWEEN.keys())
def test_a_rule_between_requests_is_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Constraint.model_validate(given)


@pytest.mark.parametrize(
    ("given", "level", "concerned"),
    [
        ({"match": "numa"}, "numa", [0, 1, 2]),
        ({"distinct": "l3", "requests": ["c", "a"]}, "l3", [0, 2]),
        ({"match": "socket", "requests": ["b"]}, "socket", [1]),
    ],
)
def test_a_rule_knows_its_level_and_whom_it_concerns(given, level, concerned):
    rule = Constraint.model_validate(given)
    assert (rule.level, rule.concerns("abc")) == (level, concerned)


CLAIMS = {
    "no request": ({"requests": []}, "at least 1 item"),
    "too many requests": ({"requests": [{"name": f"r{n}", "cpus": 1} for n in range(65)]}, "at most 64 items"),
    "a name given twice": ({"requests": [{"cpus": 1}, {"cpus": 2}]}, "request name 'cpus' is given twice"),
    "a rule for a stranger": (
        {"requests": [{"cpus": 1}], "constraints": [{"match": "numa", "requests": ["gpu"]}]},
        "constraint names the unknown request 'gpu'",
    ),
}


@pytest.mark.parametrize(("given", "reason"), CLAIMS.values(), ids=CLAIMS.keys())
def test_a_claim_is_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Claim.model_validate(given)
