"""The safety nets of the engine: what an exact method claims is not given when another witness contradicts it."""

import pytest

import solver.cpsat.batch
from models import Constraint, DefectError, Request, Topology, parse_cpuset, to_mask
from solver.engine import solve
from solver.outcome import Outcome
from topologies.synthetic import build

SMALL = build("socket:1 numa:2 core:2 cpu:2")
"""NUMA nodes 0-1,4-5 | 2-3,6-7; core g is CPUs g and g + 4."""

PAIR = [Request(name="a", cpus=2), Request(name="b", cpus=2)]
"""Greedy and the exact methods place them on CPUs 0,4 and 1,5."""


def claim_that(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> None:
    """Let CP-SAT claim this outcome of every problem."""
    monkeypatch.setattr(solver.cpsat.batch, "solve_exact", lambda *_args, **_options: outcome)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("auto", "cpsat called a problem infeasible for which .*greedy"),
        ("cpsat", "CP-SAT called a problem infeasible"),
    ],
)
def test_infeasible_is_not_believed_where_greedy_has_an_allocation(monkeypatch, engine, message):
    claim_that(monkeypatch, Outcome(None, proven=True))
    with pytest.raises(DefectError, match=message):
        solve(SMALL, PAIR, engine=engine, time_limit=60)


def test_infeasible_is_not_believed_where_counting_finds_room(monkeypatch):
    claim_that(monkeypatch, Outcome(None, proven=True))
    with pytest.raises(DefectError, match="infeasible"):
        solve(SMALL, Request(cpus=3), engine="cpsat", time_limit=60)


ONLY_SEARCH = Topology.model_validate(
    {
        "cpus": [{"cpu": cpu, "core": cpu, "numa": cpu // 2} for cpu in range(4)],
        "numa_nodes": [{"id": 0}, {"id": 1}],
    }
)
APART = (
    [Request(name="a", cpus=1), Request(name="b", cpus=2), Request(name="c", cpus=1)],
    [Constraint(distinct="numa", requests=("a", "b")), Constraint(match="numa", requests=("a", "c"))],
)


@pytest.mark.parametrize("engine", ["auto", "cpsat"])
def test_infeasible_is_not_believed_where_only_a_second_search_finds_an_allocation(monkeypatch, engine):
    for user in ("methods", "feasibility"):
        monkeypatch.setattr(f"solver.{user}.allocate", lambda _problem: None)
    requests, constraints = APART
    assert solve(ONLY_SEARCH, requests, constraints=constraints, engine=engine, time_limit=60).status == "optimal"
    claim_that(monkeypatch, Outcome(None, proven=True))
    with pytest.raises(DefectError, match="infeasible"):
        solve(ONLY_SEARCH, requests, constraints=constraints, engine=engine, time_limit=60)


def test_infeasible_is_believed_where_no_witness_contradicts(monkeypatch):
    claim_that(monkeypatch, Outcome(None, proven=True))
    impossible = [Constraint(match="numa")]
    result = solve(SMALL, [Request(name="a", cpus=3), Request(name="b", cpus=2)], constraints=impossible)
    assert result.status == "infeasible"


def masks(*cpusets: str) -> tuple[int, ...]:
    return tuple(to_mask(parse_cpuset(cpuset)) for cpuset in cpusets)


WORSE = {
    "in its metrics": masks("0,4", "2,6"),
    "by the tie rule": masks("2,6", "3,7"),
}


@pytest.mark.parametrize("taken", WORSE.values(), ids=WORSE.keys())
def test_an_optimum_worse_than_greedys_answer_is_a_defect(monkeypatch, taken):
    greedy = solve(SMALL, PAIR, engine="greedy")
    claim_that(monkeypatch, Outcome(masks(*("0,4", "1,5")), proven=True))
    assert solve(SMALL, PAIR, time_limit=60).allocations[0].cpuset == greedy.allocations[0].cpuset
    claim_that(monkeypatch, Outcome(taken, proven=True))
    with pytest.raises(DefectError, match="greedy"):
        solve(SMALL, PAIR, time_limit=60)


def test_without_proof_the_better_of_both_answers_is_given(monkeypatch):
    claim_that(monkeypatch, Outcome(masks("0,4", "2,6"), proven=False))
    result = solve(SMALL, PAIR, time_limit=60)
    assert (result.status, result.engine) == ("feasible", "greedy")
    claim_that(monkeypatch, Outcome(masks("0,4", "1,5"), proven=False))
    uneven = solve(SMALL, PAIR, free=parse_cpuset("0-1,4-7"), time_limit=60)
    assert (uneven.status, uneven.metrics["cores"]) == ("feasible", 2)


@pytest.mark.parametrize("taken", [masks("0,4", "0,4"), masks("0", "1,5"), masks("0,8", "1,5")])
def test_an_allocation_that_breaks_a_rule_is_a_defect(monkeypatch, taken):
    claim_that(monkeypatch, Outcome(taken, proven=True))
    with pytest.raises(DefectError):
        solve(SMALL, PAIR, time_limit=60)
