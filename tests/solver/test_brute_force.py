"""All engines against the right answer, found by trying every choice of CPUs on small random machines."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from models import DefectError, Request, Result, Topology, to_mask
from solver.counting import can_be_placed
from solver.engine import solve
from solver.problem import Prepared, Problem
from solver.score import Scorer
from tests.solver.brute_force import brute_force, can_be_allowed
from tests.solver.machines import KINDS, PREFERENCES, Case, joint_case, single_case
from topologies.graph import Machine

CHUNK = 100
SINGLE = range(int(os.environ.get("CPUSAT_BRUTE_FORCE_CHUNKS", "24")))
JOINT = range(int(os.environ.get("CPUSAT_BRUTE_FORCE_JOINT_CHUNKS", "4")))
TELLING = (536, 717, 747, 1035)
"""Seeds of batches, beyond those of the chunks."""
LONG = 60.0
"""A time limit that no small machine reaches: what is asked for here are proofs."""

Answer = tuple[int, ...] | None


def test_the_best_of_a_hand_case_is_found_by_brute_force():
    topology = Topology.model_validate({"cpus": [{"cpu": cpu, "core": cpu // 2} for cpu in range(4)]})
    assert brute_force(topology, frozenset({0, 2, 3}), [Request(cpus=2)]) == (0b1100,)
    assert brute_force(topology, frozenset({0, 2, 3}), [Request(cpus=4)]) is None


def joint_is_built() -> bool:
    two = [Request(name="a", cpus=1), Request(name="b", cpus=1)]
    try:
        solve(
            Topology.model_validate({"cpus": [{"cpu": 0, "core": 0}, {"cpu": 1, "core": 1}]}), two, engine="cpsat"
        )
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("chunk", SINGLE)
def test_one_request_gets_exactly_the_best_cpus(chunk):
    assert complaints(chunk, single_case, disagreements_on_one) == []


@pytest.mark.parametrize("chunk", JOINT)
def test_requests_placed_together_get_exactly_the_best_cpus(chunk):
    assert complaints(chunk, joint_case, disagreements) == []


@pytest.mark.parametrize("seed", TELLING)
def test_batches_that_once_told_a_wrong_proof_from_a_right_one_get_the_best_cpus(seed):
    """With bounds taken over past a metric that is above its own, each of these got a wrong optimum."""
    case = joint_case(seed)
    best = brute_force(case.topology, case.free, case.requests, case.constraints)
    assert list(disagreements(case, best)) == []


def test_of_two_core_types_the_lowest_cpus_are_taken():
    kinds = ("performance", "efficiency", "performance")
    topology = Topology.model_validate(
        {"cpus": [{"cpu": i, "core": i, "core_type": k} for i, k in enumerate(kinds)]}
    )
    requests = (Request(name="a", cpus=1), Request(name="b", cpus=1))
    result = solve(topology, requests, engine="cpsat", time_limit=LONG)
    assert masks(result) == brute_force(topology, topology.online, requests) == (0b001, 0b010)


def machine(*cpus: tuple[int, int, int, int, str], **more: object) -> Topology:
    """CPUs as (core, socket, NUMA node, L3, P or E), numbered in this order."""
    kinds = {"P": "performance", "E": "efficiency"}
    documents = [
        {"cpu": i, "core": core, "socket": socket, "numa": numa, "l3": l3, "core_type": kinds[kind]}
        for i, (core, socket, numa, l3, kind) in enumerate(cpus)
    ]
    nodes = [{"id": node} for node in sorted({numa for _, _, numa, _, _ in cpus})]
    return Topology.model_validate({"cpus": documents, "numa_nodes": nodes, **more})


NOT_INTERCHANGEABLE = {
    "nodes of different core types": (
        machine((0, 0, 0, 0, "P"), (1, 0, 1, 1, "E"), (2, 0, 2, 2, "E")),
        [Request(cpus=2)],
        [{1, 2}],
    ),
    "nodes under different L3s": (
        machine((0, 0, 0, 0, "P"), (1, 0, 1, 1, "P"), (2, 0, 2, 1, "P")),
        [Request(cpus=2)],
        [{1, 2}],
    ),
    "nodes with smaller whole cores than the largest": (
        machine((0, 0, 0, 0, "P"), (0, 0, 0, 0, "P"), (1, 0, 1, 1, "P"), (2, 0, 2, 2, "P")),
        [Request(cpus=2, policy="distributed", full_cores=True, numa_min=2)],
        [{2, 3}],
    ),
    "nodes whose whole cores are of mixed sizes": (
        machine((0, 0, 0, 0, "P"), (0, 0, 0, 0, "P"), (1, 0, 0, 0, "P"), (2, 0, 1, 1, "E"), (2, 0, 1, 1, "E")),
        [Request(cpus=2, policy="distributed", full_cores=True)],
        [{0, 1}],
    ),
    "nodes with as many allowed but not as many free CPUs": (
        machine((0, 0, 0, 0, "P"), (1, 0, 0, 0, "P"), (2, 0, 1, 1, "P")),
        [Request(name="a", cpus=1, within={0, 2}), Request(name="b", cpus=1, within={1})],
        [{0}, {1}],
    ),
}


@pytest.mark.parametrize("engine", ["auto", "cpsat"])
@pytest.mark.parametrize("name", NOT_INTERCHANGEABLE)
def test_what_differs_is_not_taken_for_alike(name, engine):
    topology, requests, chosen = NOT_INTERCHANGEABLE[name]
    result = solve(topology, requests, engine=engine, time_limit=LONG)
    assert result.status == "optimal"
    assert [set(allocation.cpuset) for allocation in result.allocations] == chosen
    assert masks(result) == brute_force(topology, topology.online, requests)


def complaints(chunk: int, draw: Callable[[int], Case], ask: Callable[[Case, Answer], Iterator[str]]) -> list[str]:
    found = []
    for case in map(draw, range(chunk * CHUNK, (chunk + 1) * CHUNK)):
        best = brute_force(case.topology, case.free, case.requests, case.constraints)
        found += [f"seed {case.seed} ({case.kind}): {text}" for text in ask(case, best)]
    return found


def disagreements_on_one(case: Case, best: Answer) -> Iterator[str]:
    (demand,) = Problem.of(Prepared(case.topology), to_mask(case.free), case.requests).demands
    if can_be_placed(demand) != (best is not None):
        yield "counting errs"
    yield from disagreements(case, best)


def disagreements(case: Case, best: Answer) -> Iterator[str]:
    """What the engines do wrong, one sentence each."""
    ask = partial(answer, case)
    if (found := ask(engine="cpsat")) != expected(best):
        yield f"cpsat says {found}, best is {expected(best)}"
    if case.seed % 2 == 0 and (found := ask(engine="auto")) != expected(best):
        yield f"auto says {found}, best is {expected(best)}"
    if (found := ask(engine="dp")) not in (expected(best), ("unknown", None)):
        yield f"dp says {found}, best is {expected(best)}"
    status, greedy = ask(engine="greedy")
    if status == "infeasible" and best is not None:
        yield "greedy calls infeasible what is not"
    if greedy is not None and (best is None or quality(case, greedy) < quality(case, best)):
        yield f"greedy gives {greedy}, which should not be possible"


def answer(case: Case, **options) -> tuple[str, Answer]:
    try:
        result = solve(
            case.topology,
            case.requests,
            constraints=case.constraints,
            free=case.free,
            time_limit=LONG,
            **options,
        )
    except DefectError as error:
        return f"a defect: {error}", None
    return result.status, masks(result)


def masks(result: Result) -> Answer:
    return tuple(to_mask(each.cpuset) for each in result.allocations) or None


def expected(best: Answer) -> tuple[str, Answer]:
    return ("infeasible" if best is None else "optimal"), best


def quality(case: Case, taken: tuple[int, ...]) -> tuple[object, ...]:
    scorer = Scorer(Machine(case.topology))
    metrics = scorer.joint(to_mask(case.free), case.requests, taken)
    return (tuple(metrics.values()), *map(scorer.tie_key, taken))


OPTIONS = {
    "distributed": lambda request: request.policy == "distributed",
    "full_cores": lambda request: request.full_cores,
    "threads: spread": lambda request: request.threads == "spread",
    "prefer_l3": lambda request: request.prefer_l3,
    "align_by_socket": lambda request: request.align_by_socket,
    "numa_min": lambda request: isinstance(request.numa_min, int),
    "numa_min: all": lambda request: request.numa_min == "all",
    "numa_max": lambda request: request.numa_max is not None,
    "numa_ids": lambda request: request.numa_ids is not None,
    "fit: loose": lambda request: request.fit == "loose",
    "core_type: performance": lambda request: request.core_type == "performance",
    "core_type: efficiency": lambda request: request.core_type == "efficiency",
    "near a device": lambda request: request.near == "nic",
    "near CPUs": lambda request: request.near not in (None, "nic"),
    "within": lambda request: request.within is not None,
    **{f"strict {name}": lambda request, name=name: request.is_strict(name) for name in PREFERENCES},
}


MACHINES = {
    "CPUs reserved": lambda topology: bool(topology.reserved),
    "a NUMA node without CPUs": lambda topology: len(topology.numa_nodes) > len({c.numa for c in topology.cpus}),
    "distances that differ by direction": lambda topology: any(
        node.distances and node.distances[other.id] != other.distances[node.id]
        for node in topology.numa_nodes
        for other in topology.numa_nodes
    ),
    "unequal cores": lambda topology: len(set(Counter(cpu.core for cpu in topology.cpus).values())) > 1,
    "four NUMA nodes": lambda topology: len({cpu.numa for cpu in topology.cpus}) == 4,
}


def test_every_option_and_every_kind_of_machine_is_often_placed_and_sometimes_not():
    seen: Counter[str] = Counter()
    for case in map(single_case, range(24 * CHUNK)):
        outcome = "placed" if can_be_allowed(case.topology, case.free, case.requests) else "refused"
        seen.update(f"{name} {outcome}" for name in ("all", case.kind, *features(case)))
    names = (*KINDS, *OPTIONS, *MACHINES)
    assert [name for name in names if seen[f"{name} placed"] < 20 or not seen[f"{name} refused"]] == []
    assert 0.15 < seen["all refused"] / (24 * CHUNK) < 0.25


def features(case: Case) -> Iterator[str]:
    (request,) = case.requests
    yield from (name for name, has in OPTIONS.items() if has(request))
    yield from (name for name, has in MACHINES.items() if has(case.topology))


def test_rules_between_requests_are_often_kept_and_sometimes_cannot_be():
    seen: Counter[tuple[object, ...]] = Counter()
    for case in map(joint_case, range(4 * CHUNK)):
        placed = can_be_allowed(case.topology, case.free, case.requests, case.constraints)
        seen.update({("requests", len(case.requests), placed): 1, ("policies", policies(case), placed): 1})
        seen.update(("match" if rule.match else "distinct", rule.level, placed) for rule in case.constraints)
    wanted = [(kind, level) for kind in ("match", "distinct") for level in ("numa", "socket", "l3")]
    wanted += [("requests", 2), ("requests", 3), ("policies", 1), ("policies", 2)]
    assert [each for each in wanted if seen[*each, True] < 10 or not seen[*each, False]] == []


def policies(case: Case) -> int:
    return len({request.policy for request in case.requests})
