"""One-shot quality: what is compared, how it is summed up, and that printed cases are true."""

import shlex

import pytest
from click.testing import CliRunner

from benchmarks import cases, quality
from benchmarks.instances import Instance, prepared
from benchmarks.spread import excess, mean_of, student
from cpusat.cli import main
from models import Request

SMALL = "socket:2 numa:3 l3:2 core:5 cpu:2"


@pytest.fixture(scope="module")
def judged():
    return list(quality.judge_machine(SMALL, sets=6))


def test_every_policy_and_option_is_judged_on_every_instance(judged):
    keys = {(one.request.policy, one.option) for one in judged}
    assert keys == {(policy, option) for policy in quality.POLICIES for option in quality.OPTIONS}
    assert all(one.proven for one in judged)


def test_the_same_seed_gives_the_same_answers(judged):
    assert list(quality.judge_machine(SMALL, sets=6)) == judged


def test_no_greedy_answer_is_better_than_the_optimum_in_the_order_of_metrics(judged):
    assert all(tuple(one.greedy.values()) >= tuple(one.optimum.values()) for one in judged if one.greedy)


def test_shares_in_the_summary_are_those_of_the_cases(judged):
    row = next(row for row in quality.summary(judged) if (row.policy, row.option) == ("packed", "plain"))
    own = [one for one in judged if (one.request.policy, one.option) == ("packed", "plain")]
    assert row.wrong == sum(one.greedy != one.optimum for one in own) / len(own)
    assert row.metrics["numa_nodes"].share == sum(one.nodes_wasted > 0 for one in own) / len(own)


def test_dominated_means_worse_in_one_metric_and_better_in_none():
    def judge(greedy):
        optimum = {"numa_nodes": 1, "cores": 4}
        instance = Instance(SMALL, 0, "free", 1, 1)
        return quality.Judged(instance, "plain", Request(cpus=1), True, optimum, greedy)

    assert judge({"numa_nodes": 2, "cores": 4}).dominated
    assert not judge({"numa_nodes": 2, "cores": 3}).dominated
    assert judge({"numa_nodes": 2, "cores": 3}).wrong
    assert not judge({"numa_nodes": 1, "cores": 4}).wrong


def test_requests_for_whole_cores_are_sizes_that_whole_free_cores_hold():
    free = prepared(SMALL).machine.cores[0].mask | 1 << 1
    request = quality.request_of(Instance(SMALL, 0, "threads", free, 3), "packed", "full_cores")
    assert request is not None
    assert request.cpus == 2


def test_printed_cases_show_greedy_with_a_numa_node_too_many(judged):
    found = cases.smallest(judged, 2)
    assert found
    for case in found:
        shown = CliRunner().invoke(main, shlex.split(case.command))
        line = next(line for line in shown.output.splitlines() if line.startswith("numa_nodes"))
        assert line.split()[1:3] == [str(case.greedy["numa_nodes"]), str(case.optimum["numa_nodes"])]
        assert case.greedy["numa_nodes"] - case.optimum["numa_nodes"] >= 1


def test_made_small_a_case_holds_no_more_than_before(judged):
    one = next(one for one in judged if one.nodes_wasted and one.option != "spread")
    held = prepared(SMALL).machine.online & ~one.instance.free
    assert cases.shrunk(one).held & ~held == 0


def test_excess_is_spread_over_those_above_only():
    assert excess([0, 0, -3, 1, 2, 9]).share == 0.5
    assert excess([0, 0, -3, 1, 2, 9]).median == 2
    assert excess([0, -1]).worst == 0


@pytest.mark.parametrize(("freedom", "expected"), [(4, 2.776), (9, 2.262), (30, 2.042)])
def test_students_quantiles_are_those_of_the_tables(freedom, expected):
    assert student(freedom) == pytest.approx(expected, rel=0.005)


def test_a_mean_whose_interval_holds_zero_does_not_differ():
    assert not mean_of([-1.0, 1.0, 0.5, -0.5]).differs
    assert mean_of([1.0, 1.1, 0.9, 1.0]).differs
