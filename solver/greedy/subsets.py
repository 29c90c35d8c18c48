"""The subset that gains the most, and the first one that gains enough, without trying them all.

A dynamic program from the last node to the first, whose states are: how many members are still to be chosen, how
many groups they still have to give, and the phase of giving (0, then 1).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.greedy.moves import Move

Gains = NDArray[np.int64]
"""The most that can be gained, by [phase, members to choose, groups to give]; negative where impossible."""

_IMPOSSIBLE = -(1 << 60)


class Subsets:
    """All subsets of the nodes up to a size whose members give exactly so many groups, all on the same level.

    ``ways[level][node]`` are the node's moves as a member; a node without moves cannot be one.
    """

    def __init__(self, ways: Sequence[Sequence[Sequence[Move]]], size: int, groups: int) -> None:
        self._groups = groups
        self._ways = ways
        self._tables = [_tables(level, size, groups) for level in ways]

    def most(self, size: int) -> int:
        """The most that a subset of that size can gain; negative where there is none."""
        return max(int(tables[0][0, size, self._groups]) for tables in self._tables)

    def first(self, size: int, enough: int) -> list[int]:
        """The lexicographically first subset of that size that gains ``enough`` on one of the levels."""
        levels = zip(self._ways, self._tables, strict=True)
        return min(
            self._first(ways, tables, size, enough)
            for ways, tables in levels
            if tables[0][0, size, self._groups] >= enough
        )

    def _first(self, ways: Sequence[Sequence[Move]], tables: list[Gains], size: int, enough: int) -> list[int]:
        chosen: list[int] = []
        so_far = np.full((2, self._groups + 1), _IMPOSSIBLE)
        so_far[0, self._groups] = 0
        for node, moves in enumerate(ways):
            with_node = _push(so_far, moves)
            missing = size - len(chosen)
            if missing and (with_node + tables[node + 1][:, missing - 1]).max() >= enough:
                chosen.append(node)
                so_far = with_node
        return chosen


def _tables(ways: Sequence[Sequence[Move]], size: int, groups: int) -> list[Gains]:
    """Per node, what it and the later nodes can gain; after the last node, nothing."""
    nothing = np.full((2, size + 1, groups + 1), _IMPOSSIBLE)
    nothing[:, 0, 0] = 0
    tables = [nothing]
    for moves in reversed(ways):
        tables.append(_pull(tables[-1], moves))
    return tables[::-1]


def _pull(later: Gains, moves: Sequence[Move]) -> Gains:
    """The table of a node from that of the next one."""
    gains = later.copy()
    width = gains.shape[2]
    for move in moves:
        if move.groups < width:
            target = gains[move.before, 1:, move.groups :]
            np.maximum(target, later[move.after, :-1, : width - move.groups] + move.gain, out=target)
    return gains


def _push(so_far: Gains, moves: Sequence[Move]) -> Gains:
    """Gains by [phase, groups to give] once the node is a member too."""
    gains = np.full_like(so_far, _IMPOSSIBLE)
    width = gains.shape[1]
    for move in moves:
        if move.groups < width:
            target = gains[move.after, : width - move.groups]
            np.maximum(target, so_far[move.before, move.groups :] + move.gain, out=target)
    return gains
