"""Metrics of all allocations together: what is left of the domains that any request uses."""

from collections.abc import Callable, Sequence

from ortools.sat.python import cp_model

from solver.cpsat.expressions import dot, square
from solver.cpsat.rules import any_user
from solver.cpsat.search import Expr
from solver.cpsat.spans import Literals, SpanModel
from solver.problem import Problem
from topologies.graph import Domain


def numa_leftover(model: cp_model.CpModel, problem: Problem, spans: Sequence[SpanModel]) -> Expr:
    """Free CPUs left in used NUMA nodes."""
    return _leftover(model, problem, problem.machine.numa_nodes, [each.numa_nodes for each in spans])


def l3_leftover(model: cp_model.CpModel, problem: Problem, spans: Sequence[SpanModel]) -> Expr:
    """Free CPUs left in used L3s; 0 where there are none."""
    return _leftover(model, problem, problem.machine.l3s, [each.l3s for each in spans])


def numa_balance(model: cp_model.CpModel, problem: Problem, spans: Sequence[SpanModel]) -> Expr:
    """Squares of what is left in each NUMA node, added up."""
    total: Expr = 0
    for position, node in enumerate(problem.machine.numa_nodes):
        free = (node.mask & problem.free).bit_count()
        total += square(model, free - sum(each.share(position) for each in spans), free)
    return total


def _leftover(
    model: cp_model.CpModel, problem: Problem, domains: Sequence[Domain], used: Sequence[Literals]
) -> Expr:
    if not domains:
        return 0
    positions = sorted({position for literals in used for position in literals})
    free = [(domains[position].mask & problem.free).bit_count() for position in positions]
    users = [[literals[position] for literals in used if position in literals] for position in positions]
    given = sum(demand.cpus for demand in problem.demands)
    return dot(free, [any_user(model, literals) for literals in users]) - given


UNION_METRICS: dict[str, Callable[[cp_model.CpModel, Problem, Sequence[SpanModel]], Expr]] = {
    "numa_leftover": numa_leftover,
    "numa_balance": numa_balance,
    "l3_leftover": l3_leftover,
}
