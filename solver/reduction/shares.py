"""Even shares: how uneven they must be at least, and the ranges of sizes that then hold all of them.

In closed form: for a least share, the NUMA nodes that have as much are eligible, and the largest of them, each
giving at most the least share and the width of the window, give most.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """Shares of used NUMA nodes: at least ``least`` CPUs and at most ``width`` more."""

    least: int
    width: int


@dataclass(frozen=True)
class Shares:
    """Shares of ``total`` over at least ``fewest`` and at most ``most`` of some NUMA nodes.

    Everything is counted in steps: single CPUs, or whole cores where all are of one size. ``sizes``: the most that
    each node can give, each number from 1 up to that being possible.
    """

    sizes: tuple[int, ...]
    total: int
    fewest: int
    most: int
    _grids: dict[int, Grid] = field(default_factory=dict, compare=False)

    def least_width(self) -> int | None:
        """By how much shares must be allowed to differ, at least 1; ``None`` if they never add up to the total."""
        most = max(self.sizes, default=0)
        # Even shares are asked for first, because they mostly exist.
        if most and self._fit(1):
            return 1
        widths = range(2, most + 1)
        found = bisect_left(widths, True, key=self._fit)
        return widths[found] if found < len(widths) else None

    def windows(self, nodes: int, width: int) -> list[int]:
        """The least shares of windows of this width over so many nodes.

        A window whose upper end all shares would have to reach is left out: the next one holds them too.
        """
        feasible = self._feasible(width)
        if nodes > feasible.shape[1]:
            return []
        leasts: list[int] = (np.flatnonzero(feasible[:, nodes - 1]) + 1).tolist()
        return [least for least in leasts if self.total != nodes * (least + width)]

    def _fit(self, width: int) -> bool:
        return bool(self._feasible(width).any())

    def _feasible(self, width: int) -> Grid:
        """``[least - 1, nodes - 1]``: whether shares from least to least + width over so many nodes add up."""
        if width not in self._grids:
            self._grids[width] = self._grid(width)
        return self._grids[width]

    def _grid(self, width: int) -> Grid:
        sizes = np.array(sorted(self.sizes, reverse=True))
        least = np.arange(1, sizes[0] + 1)[:, None]
        nodes = np.arange(1, len(sizes) + 1)[None, :]
        eligible = sizes[None, :] >= least
        largest = np.where(eligible, np.minimum(sizes[None, :], least + width), 0).cumsum(axis=1)
        allowed = (nodes >= self.fewest) & (nodes <= self.most)
        grid: Grid = eligible & allowed & (nodes * least <= self.total) & (largest >= self.total)
        return grid


def in_steps(possible: Sequence[int], step: int) -> int | None:
    """How many steps can be taken, if every number of steps up to that can be; else ``None``."""
    most = max(possible, default=0) // step
    return most if list(possible) == list(range(0, (most + 1) * step, step)) else None
