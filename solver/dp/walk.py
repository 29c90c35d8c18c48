"""The walk back: which NUMA nodes the recurrence's least cost stands for, the first by the tie rule."""

from solver.dp.recurrence import KindCosts, Pattern, Recurrence
from solver.reduction.minplus import add
from solver.reduction.shares import Window


def first_nodes(recurrence: Recurrence, pattern: Pattern, window: Window, cost: int) -> tuple[int, ...]:
    """The lexicographically smallest list of NUMA nodes, by position, of a pattern that has this cost.

    Node by node in their order: it is taken if the nodes after it still reach the cost.
    """
    kinds, left, places = recurrence.kinds(window), list(pattern), _places(recurrence)
    if all(used in (0, len(kind.idle)) for kind, used in zip(kinds, pattern, strict=True)):
        return tuple(position for position, k in places if pattern[k])
    target, taken = cost - recurrence.cost_of_pattern(pattern), recurrence.nothing
    chosen: list[int] = []
    at = [0] * len(kinds)
    for position, k in places:
        kind, i = kinds[k], at[k]
        at[k] += 1
        fewer, used = [count - (j == k) for j, count in enumerate(left)], add(taken, kind.shares[i])
        rest = [used, *map(KindCosts.from_node, kinds, at, fewer)] if fewer[k] >= 0 else []
        if rest and recurrence.cost_of(rest, pattern, window) == target:
            chosen.append(position)
            left, taken = fewer, used
        else:
            taken = add(taken, kind.idle[i])
    return tuple(chosen)


def _places(recurrence: Recurrence) -> list[tuple[int, int]]:
    """NUMA nodes in order, each with its kind."""
    return sorted((position, k) for k, kind in enumerate(recurrence.patterns.kinds) for position in kind.positions)
