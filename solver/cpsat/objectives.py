"""Metric expressions as objectives: what each metric can be at most, so that several fit one weighted sum."""

from collections.abc import Iterable, Mapping

from ortools.sat.python import cp_model

from solver.cpsat.search import Expr, Objective
from solver.problem import Problem


def objectives(problem: Problem, metrics: Mapping[str, Expr], names: Iterable[str]) -> list[Objective]:
    """The metrics of these names, in this order; a joined name is a sum over requests that name it differently."""
    largest = _largest(problem)
    cpus = sum(demand.cpus for demand in problem.demands)
    most = {name: max(largest.get(part, cpus) for part in name.split("+")) for name in names}
    return [Objective(name, metrics[name], bound) for name, bound in most.items()]


def _largest(problem: Problem) -> dict[str, int]:
    """Metrics that are not simply at most the number of CPUs asked for."""
    machine, free, requests = problem.machine, problem.free.bit_count(), len(problem.demands)
    return {
        "floor_shortfall": sum(demand.floor for demand in problem.demands),
        "numa_nodes": requests * len(machine.numa_nodes),
        "sockets": requests * len(machine.sockets),
        "numa_distance": requests * sum(map(sum, machine.distances)),
        "core_types": requests * 3,
        "numa_leftover": free,
        "numa_balance": free**2,
        "l3_leftover": free,
    }


def dot(weights: Iterable[int], variables: Iterable[cp_model.IntVar]) -> cp_model.LinearExpr:
    """Weighted sum of variables."""
    return cp_model.LinearExpr.weighted_sum(list(variables), list(weights))


def square(model: cp_model.CpModel, expr: Expr, most: int) -> cp_model.IntVar:
    """A variable that equals expr², for an expression between 0 and ``most``."""
    root, result = model.new_int_var(0, most, "root"), model.new_int_var(0, most**2, "square")
    model.add(root == expr)
    model.add_multiplication_equality(result, [root, root])
    return result
