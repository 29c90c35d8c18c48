"""The tie rule as objectives: lexicographic orders as weighted sums, in pieces that fit an integer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from ortools.sat.python import cp_model

from solver.cpsat.search import Expr, Objective

_WIDEST = 1 << 40

Digit = tuple[Expr, int]
"""Something to be small, and the most it can be."""


def smallest_list(model: cp_model.CpModel, used: Sequence[cp_model.IntVar], length: int | None) -> list[Objective]:
    """Prefer the lexicographically smallest list of used domains; ``length`` is how many there are, if settled.

    Position by position, a list that has ended comes before one that goes on with this domain, and that before
    one that goes on with a later one.
    """
    if length is not None:
        found = _objectives([(1 - literal, 1) for literal in used])
        return [replace(found[0], least=2 ** (len(used) - length) - 1)] if len(found) == 1 else found
    digits: list[Digit] = []
    later: cp_model.IntVar | None = None
    for literal in reversed(used):
        goes_on = literal if later is None else model.new_bool_var("goes on")
        if later is not None:
            model.add_implication(literal, goes_on)
            model.add_implication(later, goes_on)
        digits.append((2 * goes_on - literal, 2))
        later = goes_on
    return _objectives(digits[::-1])


def more_first(shares: Sequence[Digit]) -> list[Objective]:
    """Prefer to take more from the first, then the next …: pairs of a share and the most it can be."""
    return _objectives([(most - share, most) for share, most in shares])


def _objectives(digits: Sequence[Digit]) -> list[Objective]:
    return [_number(piece) for piece in _pieces(digits)]


def _pieces(digits: Sequence[Digit]) -> Iterator[Sequence[Digit]]:
    start, width = 0, 1
    for i, (_, most) in enumerate(digits):
        if width * (most + 1) > _WIDEST:
            yield digits[start:i]
            start, width = i, 1
        width *= most + 1
    if start < len(digits):
        yield digits[start:]


def _number(digits: Sequence[Digit]) -> Objective:
    weights = [prod(most + 1 for _, most in digits[i + 1 :]) for i in range(len(digits))]
    number = sum(weight * digit for weight, (digit, _) in zip(weights, digits, strict=True))
    return Objective("tie", number)
