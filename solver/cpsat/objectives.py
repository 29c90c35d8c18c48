"""The objectives: each metric as an expression of variables. No variable is made here, no constraint added."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ortools.sat.python import cp_model

from models import Request
from solver.cpsat.search import Expr
from solver.cpsat.variables import BatchVariables, CoreVariables, DistanceVariables, Literals, SpanVariables
from solver.problem import Problem
from solver.reduction.costs import Costs
from solver.reduction.minplus import Table
from solver.score import Scope, joint_order
from topologies.graph import Domain, Machine

Value = TypeVar("Value", int, Expr)


def span_metrics(request: SpanVariables) -> dict[str, Expr]:
    """The metrics of one request that its takes from blocks decide, without ``outside_near``."""
    return {
        "unevenness": request.excess,
        "floor_shortfall": request.shortfall,
        "numa_nodes": sum(request.numa_nodes.values()),
        "sockets": sum(request.sockets.values()),
        "numa_distance": distance(request.problem.machine, request.distance),
        "core_types": sum(request.core_types.values()),
    }


def distance(machine: Machine, used: DistanceVariables) -> Expr:
    """Sum of distances over ordered pairs of used NUMA nodes: only how many of each group are used counts."""
    total: Expr = 0
    for i, (group, pairs) in enumerate(zip(used.groups, used.pairs, strict=True)):
        if pairs is not None:
            total += machine.both_ways(group[0], group[1]) * pairs
        for j in range(i):
            total += machine.both_ways(group[0], used.groups[j][0]) * used.products[i, j]
    return total


def core_metrics(cores: CoreVariables, spans: SpanVariables) -> dict[str, Expr]:
    """The metrics of one request that its takes from cores and L3s decide."""
    used = sum(cores.used.values())
    return {
        "outside_near": sum(take for lot, take in cores.lots if lot.mask & ~cores.demand.near),
        "cores": used,
        "doubled_threads": cores.demand.cpus - used,
        "l3_caches": l3_caches(spans),
    }


def l3_caches(spans: SpanVariables) -> Expr:
    """Used L3s, where blocks are split by them."""
    return sum(used for l3, used in spans.l3s.items() if l3 >= 0)


def table_metrics(costs: Costs, tables: Sequence[Table], choices: Sequence[Literals]) -> dict[str, Expr]:
    """The metrics that cost tables have, at the takes chosen from each block."""
    found: dict[str, Expr] = {}
    for name in costs.packing.largest:
        fields = (
            costs.packing.field(name, table[list(choice)]) for table, choice in zip(tables, choices, strict=True)
        )
        found[name] = dot(
            [cost for field in fields for cost in field],
            [literal for choice in choices for literal in choice.values()],
        )
    return found


def numa_leftover(problem: Problem, used: Literals) -> Expr:
    """Free CPUs left in used NUMA nodes."""
    return _leftover(problem, problem.machine.numa_nodes, used)


def l3_leftover(problem: Problem, used: Literals) -> Expr:
    """Free CPUs left in used L3s; 0 where there are none."""
    return _leftover(problem, problem.machine.l3s, used) if problem.machine.l3s else 0


def _leftover(problem: Problem, domains: Sequence[Domain], used: Literals) -> Expr:
    free = [(domains[position].mask & problem.free).bit_count() for position in used]
    return dot(free, used.values()) - sum(demand.cpus for demand in problem.demands)


def numa_union_metrics(problem: Problem, batch: BatchVariables) -> dict[str, Expr]:
    """The metrics of all requests together that their use of NUMA nodes decides."""
    return {
        "numa_leftover": numa_leftover(problem, batch.numa_nodes.used),
        "numa_balance": sum(square.value for square in batch.left),
    }


def union_metrics(problem: Problem, batch: BatchVariables, split: Literals) -> dict[str, Expr]:
    """The metrics of all requests together; ``split`` are the literals of cores that keep free CPUs."""
    return numa_union_metrics(problem, batch) | {
        "l3_leftover": l3_leftover(problem, batch.l3s.used),
        "split_cores": sum(split.values()),
    }


def summed(requests: Sequence[Request], own: Sequence[Mapping[str, Value]], *scopes: Scope) -> dict[str, Value]:
    """Metrics of several requests together in these scopes: sums of what each request has there."""
    return {
        metric.name: sum(metrics[name] for name, metrics in zip(metric.own, own, strict=True) if name is not None)
        for metric in joint_order(requests, *scopes)
    }


def dot(weights: Iterable[int], variables: Iterable[cp_model.IntVar]) -> cp_model.LinearExpr:
    """Weighted sum of variables."""
    return cp_model.LinearExpr.weighted_sum(list(variables), list(weights))
