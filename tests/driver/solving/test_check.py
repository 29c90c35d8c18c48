"""No answer of the solver's process is believed that breaks a rule."""

import pytest

from driver.solving.check import check
from models import DefectError, Infeasible, Request, Result, Rule
from solver.engine import solve
from solver.problem import Prepared
from topologies.load import load

MACHINE = load("socket:2 numa:2 core:4 cpu:2")
PREPARED = Prepared(MACHINE)
FREE = MACHINE.online - {0, 16}
REQUESTS = (Request(name="a", cpus=4), Request(name="b", cpus=2, within=range(8)))
RIGHT = solve(PREPARED, REQUESTS, free=FREE, time_limit=20)


def altered(position, **changes):
    allocations = list(RIGHT.allocations)
    allocations[position] = allocations[position].model_copy(update=changes)
    return RIGHT.model_copy(update={"allocations": tuple(allocations)})


CLASH = Infeasible(rules=(Rule(name="cpus", request="a", text="too few"),))
WRONG = {
    "is not free": altered(1, cpuset=frozenset({0, 1})),
    "is of the wrong size": altered(1, cpuset=frozenset({1})),
    "lies outside of within": altered(1, cpuset=frozenset({20, 21})),
    "overlaps": altered(1, cpuset=RIGHT.allocations[0].cpuset),
    "binds other memory": altered(0, mems=frozenset({3})),
    "is of another request": altered(0, request="c"),
    "lacks a request": RIGHT.model_copy(update={"allocations": RIGHT.allocations[:1]}),
    "claims better metrics": RIGHT.model_copy(update={"metrics": {**RIGHT.metrics, "numa_nodes": 0}}),
    "is optimal without CPUs": RIGHT.model_copy(update={"allocations": ()}),
    "is unknown with CPUs": RIGHT.model_copy(update={"status": "unknown"}),
    "is infeasible though it is not": Result(status="infeasible", engine="cpsat", infeasible=CLASH),
    "finds nothing though greedy does": Result(status="unknown", engine="cpsat"),
}


@pytest.mark.parametrize("result", WRONG.values(), ids=WRONG)
def test_an_answer_is_refused_that(result):
    with pytest.raises(DefectError):
        check(PREPARED, REQUESTS, FREE, result)


def test_a_right_answer_and_a_true_refusal_pass():
    check(PREPARED, REQUESTS, FREE, RIGHT)
    too_many = (Request(cpus=32),)
    refusal = solve(PREPARED, too_many, free=FREE, time_limit=20)
    assert refusal.status == "infeasible"
    check(PREPARED, too_many, FREE, refusal)
