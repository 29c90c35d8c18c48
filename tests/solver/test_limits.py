"""Limits and what else is handed to ``solve``: too little time, what is free, and input that cannot be used."""

import subprocess
import sys
from functools import partial

import pytest

from models import BadInputError, Constraint, Request, Topology, parse_cpuset
from solver.engine import solve
from solver.problem import Prepared
from tests.solver.machines import single_case
from topologies.synthetic import build

SERVER = build("socket:2 numa:4 l3:2 core:8 cpu:2")
"""2s8n-128c256t: 32 CPUs in each NUMA node."""
SMALL = build("socket:1 numa:2 core:2 cpu:2")
"""NUMA nodes 0-1,4-5 | 2-3,6-7; core g is CPUs g and g + 4."""
ASKED = [
    Request(cpus=37, policy="distributed"),
    Request(cpus=12, prefer_l3=True),
    Request(cpus=40, full_cores=True, policy="distributed"),
    Request(cpus=9, threads="spread", numa_min=2),
]


def sets(result):
    return [each.cpuset for each in result.allocations]


@pytest.mark.parametrize("request_", ASKED, ids=["distributed", "L3s", "whole cores", "spread"])
@pytest.mark.parametrize("limit", [0, 0.0, 0.001])
def test_without_time_the_greedy_answer_is_given_and_said_to_be_so(request_, limit):
    result, greedy = solve(SERVER, request_, time_limit=limit), solve(SERVER, request_, engine="greedy")
    assert (result.status, result.engine, sets(result)) == ("feasible", "greedy", sets(greedy))
    assert result.metrics == greedy.metrics
    assert (
        result.notes[0]
        == f"a time limit of {limit:g} s left no time for an exact method: this is the greedy answer"
    )
    assert set(result.bounds.values()) == {None}
    assert list(result.bounds) == list(result.metrics)


def test_the_greedy_engine_does_not_blame_the_time_limit():
    result = solve(SERVER, ASKED[0], engine="greedy")
    assert (result.status, result.engine, result.notes) == ("feasible", "greedy", ())


def test_without_time_and_without_greedy_the_answer_is_not_known():
    result = solve(SERVER, ASKED[0], engine="cpsat", time_limit=0)
    assert (result.status, result.allocations, result.infeasible) == ("unknown", (), None)


@pytest.mark.parametrize("engine", ["auto", "dp", "greedy"])
def test_what_counting_excludes_is_infeasible_even_without_time(engine):
    result = solve(SMALL, Request(cpus=9), engine=engine, time_limit=0)
    assert (result.status, result.engine) == ("infeasible", "dp")
    assert "9 CPUs requested, 8 CPUs free" in str(result.infeasible)


@pytest.mark.parametrize("request_", ASKED, ids=["distributed", "L3s", "whole cores", "spread"])
def test_with_time_the_answer_is_proven_and_every_bound_is_met(request_):
    for engine, proves in (("auto", "dp"), ("dp", "dp"), ("cpsat", "cpsat")):
        result = solve(SERVER, request_, engine=engine, time_limit=60)
        assert (result.status, result.engine) == ("optimal", proves)


def test_dynamic_programming_says_where_it_does_not_apply():
    pair = [Request(name="a", cpus=1), Request(name="b", cpus=1)]
    result = solve(SMALL, pair, engine="dp", time_limit=60)
    assert (result.status, result.engine, result.allocations) == ("unknown", "dp", ())
    assert result.notes == (
        "dynamic programming does not settle this: it is for one request at a time, where domains nest",
    )
    assert solve(SMALL, pair, time_limit=60).engine == "cpsat"


def test_greedys_metrics_are_told_beside_the_optimal_ones():
    free = SERVER.online - parse_cpuset("0-3,40,77")
    (given,) = solve(SERVER, ASKED[0], free=free, time_limit=60).allocations
    (greedy,) = solve(SERVER, ASKED[0], free=free, engine="greedy").allocations
    assert given.greedy == greedy.metrics
    (alone,) = solve(SERVER, ASKED[0], free=free, engine="cpsat", time_limit=60).allocations
    assert alone.greedy is None


def test_times_are_told():
    result = solve(SMALL, Request(cpus=2))
    assert result.build_ms > 0
    assert result.solve_ms > 0


HELD = SMALL.model_copy(update={"held": {"a": parse_cpuset("0")}})
REFUSED = {
    "free CPUs beside held ones": (
        partial(solve, HELD, Request(cpus=1), free=[1]),
        "free: give either free CPUs or held ones, not both",
    ),
    "free CPUs that are not online": (
        partial(solve, SMALL, Request(cpus=1), free=[1, 9, 10]),
        "free: CPUs 9-10 are not online",
    ),
    "an unknown device": (
        partial(solve, SMALL, Request(cpus=1, near="nic")),
        "near: 'nic' is neither a device of this machine (none) nor a CPU list",
    ),
    "near CPUs that are not online": (
        partial(solve, SMALL, Request(cpus=1, near="7-8")),
        "near: '7-8' must name CPUs that are online",
    ),
    "near nothing": (partial(solve, SMALL, Request(cpus=1, near="")), "near: '' must name CPUs that are online"),
    "no request": (partial(solve, SMALL), "requests: no request; say how many CPUs are needed"),
    "an empty list of requests": (
        partial(solve, SMALL, []),
        "requests: no request; say how many CPUs are needed",
    ),
    "two requests of one name": (
        partial(solve, SMALL, [Request(cpus=1), Request(cpus=1)]),
        "request name 'cpus' is given twice; give each request a name of its own",
    ),
    "a rule for a request that is not there": (
        partial(solve, SMALL, Request(cpus=1), constraints=[Constraint(match="numa", requests=("b",))]),
        "constraint names the unknown request 'b'",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("engine", ["auto", "cpsat", "dp", "greedy"])
def test_bad_input_is_refused_with_place_and_reason(call, message, engine):
    with pytest.raises(BadInputError) as caught:
        call(engine=engine)
    assert str(caught.value) == message


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1, -0.001, float("-inf")])
def test_time_limits_that_are_no_time_are_refused(limit):
    with pytest.raises(BadInputError, match=r"time_limit.*seconds"):
        solve(SMALL, Request(cpus=1), time_limit=limit)


@pytest.mark.parametrize("workers", [0, -1])
def test_there_is_at_least_one_worker(workers):
    with pytest.raises(BadInputError, match="workers"):
        solve(SMALL, Request(cpus=1), workers=workers)


@pytest.mark.parametrize("engine", ["auto", "cpsat", "dp", "greedy"])
def test_reserved_cpus_are_never_given_though_called_free(engine):
    machine = SMALL.model_copy(update={"reserved": parse_cpuset("0,5")})
    (given,) = solve(machine, Request(cpus=6), free=machine.online, engine=engine).allocations
    assert given.cpuset == parse_cpuset("1-4,6-7")
    assert solve(machine, Request(cpus=7), free=machine.online, engine=engine).status == "infeasible"


@pytest.mark.parametrize("engine", ["auto", "cpsat", "dp", "greedy"])
def test_reserved_and_held_cpus_are_not_free(engine):
    machine = SMALL.model_copy(update={"reserved": parse_cpuset("0"), "held": {"a": parse_cpuset("1-2")}})
    (given,) = solve(machine, Request(cpus=5), engine=engine).allocations
    assert given.cpuset == parse_cpuset("3-7")


def test_requests_and_rules_come_from_the_document_unless_given():
    document = SMALL.model_dump(mode="json", by_alias=True)
    document |= {
        "requests": [{"name": "a", "cpus": 4}, {"name": "b", "cpus": 1}],
        "constraints": [{"match": "numa"}],
    }
    machine = Topology.model_validate(document)
    assert solve(machine).status == "infeasible"
    assert len(solve(machine, constraints=[], engine="greedy").allocations) == 2
    assert [each.request for each in solve(machine, Request(name="c", cpus=8)).allocations] == ["c"]


def test_mems_are_the_numa_nodes_of_the_cpus_and_empty_without_numa():
    (given,) = solve(SMALL, Request(cpus=5)).allocations
    assert given.mems == {0, 1}
    flat = Topology.model_validate({"cpus": [{"cpu": cpu, "core": cpu} for cpu in range(2)]})
    assert solve(flat, Request(cpus=1)).allocations[0].mems == frozenset()


def test_what_could_not_be_preferred_is_said():
    machine = Topology.model_validate(
        SMALL.model_dump(mode="json", by_alias=True) | {"devices": [{"name": "nic", "local_cpus": "0"}]}
    )
    wanted = Request(cpus=7, policy="distributed", numa_min=3, near="nic")
    assert solve(machine, wanted, free=parse_cpuset("0-4,6-7")).notes == (
        "NUMA nodes missing to reach numa_min: 1",
        "CPUs that are not near: 6",
    )
    uneven = solve(machine, Request(cpus=5, policy="distributed"), free=parse_cpuset("0,2-3,6-7"))
    assert uneven.notes == ("the split is not even: shares differ by 2 CPUs more than an even split allows",)


def test_answers_of_the_greedy_engine_do_not_import_the_solver():
    code = (
        "import sys; from cpusat import Request, solve; from topologies.synthetic import build;"
        "print(solve(build('core:4'), Request(cpus=2), engine='greedy').status, 'ortools' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["feasible", "False"]


def test_bounds_of_a_proven_answer_are_its_metrics_or_not_told():
    for case in map(single_case, range(40)):
        result = solve(Prepared(case.topology), case.requests, free=case.free, engine="cpsat", time_limit=60)
        if result.status == "optimal":
            assert result.bounds in ({}, result.metrics)


@pytest.mark.parametrize("requests", ["two", b"two", 2])
def test_what_is_no_request_is_called_so(requests):
    with pytest.raises(BadInputError, match="requests: is neither a Request nor a sequence of them"):
        solve(SMALL, requests)
