"""The choice of NUMA nodes against the kubelet's definition of it: try every set, keep the first best."""

from itertools import combinations
from math import floor, sqrt

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from solver.greedy import shares
from solver.greedy.shares import split_evenly


def thousandths(value):
    return floor(value * 1000 + 0.5) / 1000


def deviation(values):
    mean = thousandths(sum(values) / len(values))
    return thousandths(sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def after_turns(left, givers, group, missing):
    """What stays free when the givers give groups in turns; ``None`` where they have too few groups."""
    left = list(left)
    if sum(left[node] // group for node in givers) * group < missing:
        return None
    while missing:
        for node in givers:
            if missing and left[node] >= group:
                left[node] -= group
                missing -= group
    return left


def all_ways(free, cpus, group, count):
    """What stays free, and the nodes that gave, for every set of nodes and every set of givers, in order."""
    base = cpus // (count * group) * group
    for nodes in combinations(range(len(free)), count):
        if min(free[node] for node in nodes) < base:
            continue
        left = [have - base if node in nodes else have for node, have in enumerate(free)]
        able = [node for node in nodes if left[node] >= group]
        sets = [s for size in range(len(able), 0, -1) for s in combinations(able, size)]
        for givers in sets if cpus > base * count else [()]:
            if (rest := after_turns(left, givers, group, cpus - base * count)) is not None:
                yield rest, nodes


def tried_out(free, cpus, group):
    """What each chosen node gives, by trying all."""
    for count in range(1, min(cpus // group, len(free)) + 1):
        if ways := list(all_ways(free, cpus, group, count)):
            rest, nodes = min(ways, key=lambda way: deviation(way[0]))
            return {node: free[node] - rest[node] for node in nodes}
    return None


def given_cpus(split, group):
    return split and {node: split.base + groups * group for node, groups in split.groups.items()}


@st.composite
def requests(draw, most_nodes=6, most_cpus=20):
    low = draw(st.integers(1, most_cpus))
    free = draw(st.lists(st.integers(low, most_cpus), min_size=1, max_size=most_nodes))
    group = draw(st.integers(1, 4))
    return free, group * draw(st.integers(1, max(1, sum(free) // group))), group


@settings(max_examples=300)
@given(requests())
@example(([1, 1, 4], 5, 1))
@example(([3, 1, 3, 2, 1], 9, 1))
@example(([3, 3, 3, 3, 3], 12, 2))
def test_the_choice_is_the_first_best_of_all_sets(request):
    assert given_cpus(split_evenly(*request), request[2]) == tried_out(*request)


@settings(max_examples=200)
@given(requests(most_nodes=40, most_cpus=30), st.booleans())
def test_a_split_gives_what_was_asked_from_what_is_free(request, exact):
    free, cpus, group = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "MAX_STATES", shares.MAX_STATES if exact else 0)
        given = given_cpus(split_evenly(free, cpus, group), group)
    if given is not None:
        assert sum(given.values()) == cpus
        assert all(0 < share <= free[node] and share % group == 0 for node, share in given.items())


@pytest.mark.parametrize("nodes", [8, 64, 1000])
def test_equal_nodes_share_alike_however_many(nodes):
    given = given_cpus(split_evenly([8] * nodes, 7 * nodes + 3, 1), 1)
    assert sum(given.values()) == 7 * nodes + 3
    assert max(given.values()) - min(given.values()) == 1


def test_deviations_that_round_alike_are_equal_and_the_first_node_gives():
    free = [440, 441, 1, 1, 1, 1]
    assert deviation([439, 441, 1, 1, 1, 1]) == deviation([440, 440, 1, 1, 1, 1]) == 206.947
    assert given_cpus(split_evenly(free, 1, 1), 1) == {0: 1}


def test_there_is_no_split_where_the_fuller_node_has_too_few():
    assert split_evenly([2, 7], 8, 1) is None
