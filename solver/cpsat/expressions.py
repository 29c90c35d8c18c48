"""Expressions that metrics are made of."""

from collections.abc import Iterable

from ortools.sat.python import cp_model

from solver.cpsat.search import Expr


def dot(weights: Iterable[int], variables: Iterable[cp_model.IntVar]) -> cp_model.LinearExpr:
    """Weighted sum of variables."""
    return cp_model.LinearExpr.weighted_sum(list(variables), list(weights))


def square(model: cp_model.CpModel, expr: Expr, most: int) -> cp_model.IntVar:
    """A variable that equals expr², for an expression between 0 and ``most``."""
    root, result = model.new_int_var(0, most, "root"), model.new_int_var(0, most**2, "square")
    model.add(root == expr)
    model.add_multiplication_equality(result, [root, root])
    return result
