"""Joint placement: batches, and what they are compared with."""

import pytest

from benchmarks import joint
from benchmarks.instances import prepared
from models import Request

MACHINE = "socket:1 numa:2 l3:2 core:4 cpu:2"


@pytest.fixture(scope="module")
def judged():
    return [joint.judge(batch, 5.0) for batch in joint.batches(MACHINE, 3)]


def test_batches_ask_for_no_more_than_is_free():
    for batch in joint.batches(MACHINE, 6):
        whole_cores = any(request.full_cores for request in batch.requests)
        rounding = len(batch.requests) if whole_cores else 0
        assert sum(request.cpus for request in batch.requests) <= batch.free.bit_count() + rounding


def test_a_proven_joint_answer_is_never_worse_than_any_other(judged):
    assert any(one.joint for one in judged)
    for one in judged:
        if one.proven and one.joint:
            assert all(
                tuple(one.joint.values()) <= tuple(other.values()) for other in one.others.values() if other
            )


def test_what_is_proven_to_have_no_joint_answer_is_placed_by_nobody(judged):
    assert not any(one.others[way] for one in judged if one.proven and not one.joint for way in joint.WAYS)


def test_one_by_one_in_order_may_leave_no_room_where_together_there_is():
    """8 CPUs are free in NUMA node 0, 12 in node 1: the first 6 go into node 0, then 8 find no room."""
    machine = prepared(MACHINE).machine
    free = machine.numa_nodes[0].mask | machine.numa_nodes[1].mask
    for node, held in zip(machine.numa_nodes, (4, 2), strict=True):
        for core in [core for core in machine.cores if core.mask & node.mask][:held]:
            free &= ~core.mask
    sizes = (8, 6, 6)
    requests = tuple(Request(name=f"r{i}", cpus=cpus, numa_max=1) for i, cpus in enumerate(sizes))
    one = joint.judge(joint.Batch(MACHINE, "one NUMA node each", free, requests), 5.0)
    assert one.joint is not None
    assert one.joint["numa_nodes"] == 3
    requests = tuple(Request(name=f"r{i}", cpus=cpus, numa_max=1) for i, cpus in enumerate((6, 6, 8)))
    other = joint.judge(joint.Batch(MACHINE, "one NUMA node each", free, requests), 5.0)
    assert other.joint is not None
    assert other.others["in order"] is None
    assert other.others["largest first"] is not None


def test_shares_in_the_summary_are_those_of_the_batches(judged):
    rows = {(row.kind, row.way): row for row in joint.summary(judged)}
    row = rows["anywhere", "greedy"]
    own = [one for one in judged if one.batch.kind == "anywhere"]
    assert row.batches == len(own)
    worse = [one for one in own if tuple(one.others["greedy"].values()) > tuple(one.joint.values())]
    assert row.worse == len(worse) / len(own)
