"""The kubelet's recorded answers: the same CPUs, or where the kubelet is at fault none worse."""

import json
from collections import defaultdict
from functools import cache

import pytest

from models import CPU, NUMANode, Request, Topology, parse_cpuset, to_mask
from solver.greedy import take_distributed, take_packed
from solver.score import Scorer
from tests.shared import SHARED, needs_shared
from topologies.graph import Machine

PARITY = SHARED / "parity"
ALIASING = "slice aliasing"


@cache
def cases():
    """The recorded cases by (machine, policy)."""
    found = defaultdict(list)
    if PARITY.exists():
        for line in (PARITY / "cases.jsonl").read_text().splitlines():
            case = json.loads(line)
            found[case["topology"], case["policy"]].append(case)
    return found


@cache
def machine(name):
    rows = json.loads((PARITY / "topologies.json").read_text())["topologies"][name]
    cpus = [
        CPU(cpu=cpu, core=core, l3=None if l3 < 0 else l3, numa=numa, socket=socket)
        for cpu, core, l3, numa, socket in rows
    ]
    return Machine(Topology(cpus=cpus, numa_nodes=[NUMANode(id=i) for i in sorted({cpu.numa for cpu in cpus})]))


def answer(case):
    where, free, spread = machine(case["topology"]), to_mask(parse_cpuset(case["free"])), case["sort"] == "spread"
    if case["policy"] == "packed":
        return take_packed(where, free, case["cpus"], spread=spread, prefer_l3=case["prefer_l3"])
    return take_distributed(where, free, case["cpus"], group=case["group"], spread=spread)


def expected(case):
    return to_mask(parse_cpuset(case["expect"])) if "expect" in case else None


def metrics(case, taken):
    threads = "spread" if case["sort"] == "spread" else "pack"
    request = Request(cpus=case["cpus"], policy=case["policy"], threads=threads, prefer_l3=case["prefer_l3"])
    free = to_mask(parse_cpuset(case["free"]))
    return tuple(Scorer(machine(case["topology"])).metrics(free, request, taken).values())


def is_at_fault(case):
    return case.get("reference_fault", ALIASING) != ALIASING


@needs_shared
@pytest.mark.parametrize(("name", "policy"), sorted(cases()) or [("", "")])
def test_the_answer_is_the_kubelets(name, policy):
    checked = [case for case in cases()[name, policy] if not is_at_fault(case)]
    assert [case for case in checked if answer(case) != expected(case)] == []


@needs_shared
@pytest.mark.parametrize(("name", "policy"), sorted(cases()) or [("", "")])
def test_where_the_kubelet_is_at_fault_the_answer_is_valid_and_none_worse(name, policy):
    for case in filter(is_at_fault, cases()[name, policy]):
        taken, theirs = answer(case), expected(case)
        free = to_mask(parse_cpuset(case["free"]))
        if taken is None:
            assert free.bit_count() < case["cpus"], case
        else:
            assert (taken & ~free, taken.bit_count()) == (0, case["cpus"]), case
            if theirs is not None and not theirs & ~free:
                assert metrics(case, taken) <= metrics(case, theirs), case


@needs_shared
def test_all_kinds_of_cases_were_there():
    every = [case for found in cases().values() for case in found]
    assert len(every) > 6000
    assert {case["group"] for case in every} == {1, 2, 4}
    assert {case.get("reference_fault") for case in every} >= {None, ALIASING, "never returns"}
