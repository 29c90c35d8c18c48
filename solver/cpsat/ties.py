"""The tie rule as objectives: lexicographic orders as weighted sums, in pieces that fit an integer."""

from collections.abc import Iterator, Sequence
from math import prod

from ortools.sat.python import cp_model

from solver.cpsat.search import Expr, Objective, Search

_WIDEST = 1 << 40


def used_first(literals: Sequence[cp_model.IntVar], search: Search) -> list[Objective]:
    """Prefer the lexicographically smallest list of used domains; their number is settled already."""
    used = sum(map(search.value, literals))
    pieces = list(_pieces([(literal, 1) for literal in literals]))
    least = 2 ** (len(literals) - used) - 1 if len(pieces) == 1 else 0
    return [_more_first(piece, least) for piece in pieces]


def more_first(shares: Sequence[tuple[Expr, int]]) -> list[Objective]:
    """Prefer to take more from the first, then the next …: pairs of a share and the most it can be."""
    return [_more_first(piece, 0) for piece in _pieces(shares)]


def _pieces(shares: Sequence[tuple[Expr, int]]) -> Iterator[Sequence[tuple[Expr, int]]]:
    start, width = 0, 1
    for i, (_, most) in enumerate(shares):
        if width * (most + 1) > _WIDEST:
            yield shares[start:i]
            start, width = i, 1
        width *= most + 1
    if start < len(shares):
        yield shares[start:]


def _more_first(shares: Sequence[tuple[Expr, int]], least: int) -> Objective:
    weights = [prod(most + 1 for _, most in shares[i + 1 :]) for i in range(len(shares))]
    missing = sum(weight * (most - share) for weight, (share, most) in zip(weights, shares, strict=True))
    return Objective("tie", missing, most=prod(most + 1 for _, most in shares) - 1, least=least)
