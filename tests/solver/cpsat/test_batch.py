"""Bounds handed to the full model of several requests: the search ends at a bound without asking for a proof."""

import time

import pytest

from models import Request, to_mask
from solver.cpsat import batch
from solver.cpsat.search import Search
from solver.limits import Limits
from solver.problem import Prepared, Problem
from topologies.synthetic import build

FLAT = Prepared(build("socket:1 numa:2 core:2 cpu:2"))
"""NUMA nodes 0-1,4-5 | 2-3,6-7; core g is CPUs g and g + 4."""


@pytest.fixture
def least(monkeypatch):
    """The lower bounds under which the full model's metrics were minimised, by name."""
    found = {}

    class Recording(Search):
        def minimize(self, objectives):
            found.update({each.name: each.least for each in objectives if each.name != "tie"})
            super().minimize(objectives)

    monkeypatch.setattr(batch, "Search", Recording)
    return found


def finish(settled, bounds):
    """The outcome of the full model for two requests of two CPUs, started from an allocation that splits cores."""
    problem = Problem.of(FLAT, to_mask(range(8)), [Request(name="a", cpus=2), Request(name="b", cpus=2)])
    start = (to_mask([0, 1]), to_mask([4, 5]))
    return batch.finish(problem, Limits(time.perf_counter() + 60), start, settled, bounds)


def test_only_the_first_open_metric_keeps_its_bound(least):
    outcome = finish({}, {"numa_nodes": 1, "sockets": 2, "cores": 4, "l3_caches": 0})
    assert least.pop("numa_nodes") == 1
    assert set(least.values()) == {0}
    assert outcome.taken == (to_mask([0, 4]), to_mask([1, 5]))
    assert outcome.proven


def test_metrics_that_are_settled_are_not_asked_for_again(least):
    outcome = finish({"numa_nodes": 2, "sockets": 2}, {"numa_distance": 0, "cores": 4})
    assert "numa_nodes" not in least
    assert "sockets" not in least
    assert least["cores"] == 0
    assert outcome.taken == (to_mask([0, 4]), to_mask([1, 5]))
