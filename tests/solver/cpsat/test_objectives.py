"""Objectives are expressions of variables that are there: making them changes no model."""

from models import Constraint, Request, to_mask
from solver.cpsat import objectives
from solver.cpsat.batch_model import BatchModel
from solver.cpsat.relaxation import Relaxation
from solver.cpsat.single import SingleModel
from solver.problem import Prepared, Problem
from solver.score import joint_order, names
from topologies.synthetic import build

MACHINE = Prepared(build("socket:2 numa:2 l3:2 core:2 cpu:2"))
PAIR = [
    Request(name="a", cpus=4, policy="distributed", numa_min=2, near="0"),
    Request(name="b", cpus=3, threads="spread", fit="loose"),
]


def size(model):
    return len(model.proto.variables), len(model.proto.constraints)


def problem(*requests):
    return Problem.of(MACHINE, to_mask(range(16)), requests, [Constraint(match="socket")] if requests[1:] else [])


def test_metrics_of_one_request_make_no_variable():
    for request in PAIR:
        alone = problem(request)
        model = SingleModel(alone, alone.demands[0])
        before = size(model.model)
        found = objectives.span_metrics(model.spans)
        assert size(model.model) == before
        assert {name for name in names(request, "span") if name != "outside_near"} <= found.keys()


def test_metrics_of_several_requests_make_no_variable():
    model = BatchModel(problem(*PAIR))
    before = size(model.model)
    for spans, cores in zip(model.spans, model.cores, strict=True):
        objectives.core_metrics(cores, spans)
        objectives.span_metrics(spans)
    objectives.union_metrics(model.problem, model.batch, model.split)
    assert size(model.model) == before
    assert list(model.metrics) == [metric.name for metric in joint_order(PAIR)]


def test_the_relaxation_has_the_metrics_of_spans_and_of_what_numa_nodes_keep():
    model = Relaxation(problem(*PAIR))
    spans = [metric.name for metric in joint_order(PAIR, "span")]
    assert list(model.metrics) == [*spans, "numa_balance"]
