"""Both engines on the kubelet's recorded cases: the optimum is verified, proven, and never worse than greedy's."""

import os

import pytest

from models import Request, parse_cpuset, to_mask
from solver.engine import solve
from solver.problem import Prepared
from solver.score import Scorer
from solver.verify import verify
from tests.shared import needs_shared
from tests.solver.greedy.test_parity import cases, machine
from topologies.graph import Machine

EVERY = 1 if os.environ.get("CPUSAT_ALL_PARITY") else 10
"""One case in so many; all 6,000 take minutes."""


def request_of(case):
    """The case's options under our names; ``None`` where they contradict each other."""
    whole = case["group"] > 1 and case["cpus"] % case["group"] == 0
    spread = case["sort"] == "spread"
    if whole and spread:
        return None
    return Request(
        cpus=case["cpus"],
        policy=case["policy"],
        full_cores=whole,
        threads="spread" if spread else "pack",
        prefer_l3=case["prefer_l3"],
    )


def sample():
    found = [(key, case) for key in sorted(cases()) for case in cases()[key] if request_of(case) is not None]
    grouped = {}
    for key, case in found[::EVERY]:
        grouped.setdefault(key, []).append(case)
    return grouped


SAMPLE = sample()


@needs_shared
@pytest.mark.parametrize("key", list(SAMPLE) or [("", "")], ids="-".join)
def test_the_optimum_is_valid_proven_and_no_worse_than_greedy(key):
    prepared = Prepared(machine(key[0]).topology)
    assert [text for case in SAMPLE[key] if (text := complaint(prepared, case))] == []


def complaint(prepared, case):
    request, free = request_of(case), parse_cpuset(case["free"])
    ask = {"free": free, "time_limit": 60.0}
    exact = solve(prepared, request, engine="cpsat", **ask)
    greedy = solve(prepared, request, engine="greedy", **ask)
    if "infeasible" in (exact.status, greedy.status):
        agreed = exact.status == "infeasible" and greedy.status in ("infeasible", "unknown")
        return "" if agreed else f"{case}: who is right?"
    if exact.status != "optimal":
        return f"{case}: {exact.status}"
    verify(prepared.scorer, to_mask(free), [request], (), [taken(exact)], exact.metrics)
    if greedy.allocations and values(exact) > values(greedy):
        return f"{case}: {exact.metrics} is worse than greedy's {greedy.metrics}"
    return beaten_by_the_kubelet(prepared.topology, case, request, exact)


def beaten_by_the_kubelet(topology, case, request, exact):
    """The recorded answer, where it keeps our rules, is no better either."""
    theirs = to_mask(parse_cpuset(case.get("expect", "")))
    free = to_mask(parse_cpuset(case["free"]))
    if not theirs or theirs & ~free or request.full_cores:
        return ""
    metrics = Scorer(Machine(topology)).metrics(free, request, theirs)
    return (
        f"{case}: the kubelet's {metrics} beats {exact.metrics}" if tuple(metrics.values()) < values(exact) else ""
    )


def options(case):
    request = request_of(case)
    return request and (request.policy, request.full_cores, request.threads, request.prefer_l3)


def taken(result):
    return to_mask(result.allocations[0].cpuset)


def values(result):
    return tuple(result.metrics.values())


@needs_shared
def test_the_sample_has_every_machine_and_option():
    chosen = [case for found in SAMPLE.values() for case in found]
    assert {case["topology"] for case in chosen} == {name for name, _ in cases()}
    every = {options(case) for found in cases().values() for case in found}
    assert {options(case) for case in chosen} == every - {None}
    assert len(every - {None}) >= 7
