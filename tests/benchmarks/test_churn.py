"""Churn: traces, allocators, the state of a node."""

from random import Random

import pytest

from benchmarks import churn
from benchmarks.allocators import ALLOCATORS, Ask
from benchmarks.instances import instances, prepared
from benchmarks.node_state import STATES, fewest, place, state
from benchmarks.traces import MIXES, trace
from models import to_mask

MACHINE = "socket:2 numa:2 l3:2 core:4 cpu:2"
CPUS = 64


def test_every_allocator_is_given_the_same_claims_faster_at_a_higher_occupancy():
    low, high = (trace("small", CPUS, occupancy, 50, seed=1) for occupancy in (0.5, 0.9))
    assert [(one.cpus, one.lifetime) for one in low] == [(one.cpus, one.lifetime) for one in high]
    assert low[-1].time > high[-1].time
    assert trace("small", CPUS, 0.5, 50, seed=1) == low
    assert trace("small", CPUS, 0.5, 50, seed=2) != low


@pytest.mark.parametrize("occupancy", [0.5, 0.9])
def test_traces_hold_about_the_occupancy_they_are_asked_for(occupancy):
    setting = churn.Setting(MACHINE, "small", "any", occupancy)
    lives = [churn.live(setting, "first fit", 300, seed) for seed in range(6)]
    assert sum(life.means["occupancy"] for life in lives) / 6 == pytest.approx(occupancy, abs=0.08)


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("one_node", [False, True])
def test_allocators_take_as_many_free_cpus_as_asked_and_keep_the_rule(name, one_node):
    machine = prepared(MACHINE).machine
    for case in instances(MACHINE, 12):
        ask = Ask(min(case.cpus, 16), one_node)
        mask = ALLOCATORS[name](prepared(MACHINE), case.free, ask, Random(1))
        rooms = [(node.mask & case.free).bit_count() for node in machine.numa_nodes]
        if mask is None:
            assert one_node
            assert max(rooms) < ask.cpus
            continue
        assert mask & ~case.free == 0
        assert mask.bit_count() == ask.cpus
        assert not one_node or fewest(machine.numa_nodes, mask, ask.cpus) == 1


def test_the_kubelet_with_hints_takes_the_fewest_numa_nodes_with_the_lowest_ids():
    machine = prepared(MACHINE).machine
    free = machine.online & ~machine.numa_nodes[0].mask
    mask = ALLOCATORS["kubelet, hints"](prepared(MACHINE), free, Ask(20), Random(1))
    assert mask is not None
    assert mask & ~(machine.numa_nodes[1].mask | machine.numa_nodes[2].mask) == 0


def test_first_fit_takes_the_lowest_numbers():
    mask = ALLOCATORS["first fit"](prepared(MACHINE), to_mask({3, 5, 8, 9}), Ask(3), Random(1))
    assert mask == to_mask({3, 5, 8})


def test_the_state_of_a_node_is_counted_from_what_claims_hold():
    machine = prepared(MACHINE).machine
    half_a_core = to_mask({min(bit for bit in range(CPUS) if machine.cores[0].mask >> bit & 1)})
    claims = [place(machine, machine.online, mask) for mask in (half_a_core, machine.cores[1].mask)]
    free = machine.online & ~half_a_core & ~machine.cores[1].mask
    seen = dict(zip(STATES, state(machine, free, claims), strict=True))
    assert seen == {
        "split_cores": 1,
        "free_numa_nodes": 3,
        "free_l3s": 7,
        "largest_on_numa": 16,
        "largest_on_l3": 8,
    }


def test_spans_are_counted_beyond_the_fewest_possible():
    machine = prepared(MACHINE).machine
    spread = machine.cores[0].mask | machine.cores[-1].mask
    placed = place(machine, machine.online, spread)
    assert (placed.extra_numa, placed.extra_l3, placed.whole_cores) == (1, 1, 2)


def test_optimal_is_always_on_the_fewest_numa_nodes_possible_at_the_time():
    setting = churn.Setting(MACHINE, "mixed", "any", 0.8)
    assert churn.live(setting, "optimal", 40, seed=3).means["fewest_numa_now"] == 1


def test_without_a_rule_all_allocators_refuse_the_same_claims():
    setting = churn.Setting(MACHINE, "mixed", "any", 0.9)
    refused = {churn.live(setting, name, 60, seed=0).means["refused"] for name in ("kubelet", "random", "optimal")}
    assert len(refused) == 1


def test_rows_carry_paired_differences_to_the_baseline():
    setting = churn.Setting(MACHINE, "small", "one-node", 0.8)
    rows = {
        row.allocator: row for row in churn.measure([setting], ["first fit"], "kubelet", 40, seeds=3, processes=1)
    }
    difference = rows["first fit"].against["split_cores"].value
    means = [rows[name].means["split_cores"].value for name in ("first fit", "kubelet")]
    assert difference == pytest.approx(means[0] - means[1])
    assert rows["kubelet"].against == {}
    assert set(MIXES) >= {setting.mix}
