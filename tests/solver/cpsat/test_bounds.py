"""Which metrics of a first allocation are proven by bounds: of each request alone, and of the relaxation."""

import pytest

from solver.cpsat.bounds import reached, still_valid

FOUND = {"numa_nodes": 2, "sockets": 1, "cores": 6, "l3_caches": 2}
PROVEN = {
    "no bound": ([], {}),
    "bounds that say nothing": ([{}, {}], {}),
    "all at the bound": ([FOUND], FOUND),
    "the first metric is above its bound": ([{**FOUND, "numa_nodes": 1}], {}),
    "a metric after one above its bound": ([{**FOUND, "sockets": 0}], {"numa_nodes": 2}),
    "a metric after one that has no bound": ([{"numa_nodes": 2, "cores": 6, "l3_caches": 2}], {"numa_nodes": 2}),
    "the bounds end": ([{"numa_nodes": 2, "sockets": 1}], {"numa_nodes": 2, "sockets": 1}),
    "one bound goes on where the other ends": ([{"numa_nodes": 2}, FOUND], FOUND),
    "each bound is reached in turn": (
        [{"numa_nodes": 2, "sockets": 0, "cores": 6}, {"numa_nodes": 1, "sockets": 1, "cores": 5}],
        {"numa_nodes": 2, "sockets": 1, "cores": 6},
    ),
    "both bounds are missed": (
        [{"numa_nodes": 2, "sockets": 0}, {"numa_nodes": 2, "sockets": 0, "cores": 6}],
        {"numa_nodes": 2},
    ),
}


@pytest.mark.parametrize(("least", "proven"), PROVEN.values(), ids=PROVEN.keys())
def test_metrics_are_proven_up_to_the_first_that_is_above_every_bound(least, proven):
    assert reached(FOUND, least) == proven


def test_only_the_first_open_metric_keeps_its_bound():
    bounds = {"numa_nodes": 2, "sockets": 2, "cores": 7}
    assert still_valid(bounds, ["sockets", "cores", "l3_caches"]) == {"sockets": 2}
    assert still_valid(bounds, ["l3_caches", "cores"]) == {"l3_caches": 0}
    assert still_valid({"numa_nodes": None}, ["numa_nodes"]) == {"numa_nodes": 0}
    assert still_valid(bounds, []) == {}
