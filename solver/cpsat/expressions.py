"""Expressions that metrics are made of."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ortools.sat.python import cp_model

from models import Request
from solver.cpsat.search import Expr
from solver.score import joint_slots, slots

Value = TypeVar("Value", int, Expr)


def summed(requests: Sequence[Request], own: Sequence[Mapping[str, Value]], below: int) -> dict[str, Value]:
    """Metrics of several requests together in the slots below this one: sums of what each request has there."""
    found: dict[str, Value] = {}
    for slot, name in joint_slots(requests):
        if slot < below:
            names = [slots(request)[slot] for request in requests]
            found[name] = sum(metrics[each] for each, metrics in zip(names, own, strict=True) if each is not None)
    return found


def dot(weights: Iterable[int], variables: Iterable[cp_model.IntVar]) -> cp_model.LinearExpr:
    """Weighted sum of variables."""
    return cp_model.LinearExpr.weighted_sum(list(variables), list(weights))


def square(model: cp_model.CpModel, expr: Expr, most: int) -> cp_model.IntVar:
    """A variable that equals expr², for an expression between 0 and ``most``."""
    root, result = model.new_int_var(0, most, "root"), model.new_int_var(0, most**2, "square")
    model.add(root == expr)
    model.add_multiplication_equality(result, [root, root])
    return result
