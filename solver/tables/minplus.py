"""Exact tables of costs by min-plus convolution.

A table says for k = 0, 1, … what taking k CPUs costs at least. Lexicographic costs are packed into one integer
per entry, most important first (``Packing``): such an order does not change when the same cost is added on both
sides, so tables of parts add up to tables of wholes without losing exactness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[Any]
"""One packed cost per number of CPUs taken; 64-bit integers, or Python's own where those are too small."""

_WORD, _ANY = 1 << 61, 1 << 999
"""What never happens costs this much: two of the first still fit a 64-bit integer."""


FEW = 6
"""Entries up to which adding one shifted table after the other is faster than all at once."""


@dataclass(frozen=True)
class Packing:
    """Fields of a packed cost, most important first, with the largest total that each can reach."""

    largest: Mapping[str, int]

    @cached_property
    def weights(self) -> dict[str, int]:
        """What one unit of each field adds to the packed cost."""
        weights, weight = {}, 1
        for name in reversed(list(self.largest)):
            weights[name] = weight
            weight *= self.largest[name] + 1
        return weights

    @cached_property
    def dtype(self) -> type:
        """64-bit integers where every reachable cost fits, else Python's own."""
        most = sum(weight * self.largest[name] for name, weight in self.weights.items())
        return np.int64 if most < _WORD else object

    def pack(self, fields: Mapping[str, Sequence[int]], length: int) -> Table:
        """A table of ``length`` entries from its fields; fields that are not part of the packing are left out."""
        table: Table = np.zeros(length, dtype=self.dtype)
        for name, column in fields.items():
            if name in self.weights:
                table += np.asarray(column, dtype=self.dtype) * self.weights[name]
        return table

    def value(self, name: str, cost: int) -> int:
        """One field of one packed cost."""
        return cost // self.weights[name] % (self.largest[name] + 1)

    def field(self, name: str, table: Table) -> list[int]:
        """One field of each entry of a packed table."""
        return [int(entry) for entry in table // self.weights[name] % (self.largest[name] + 1)]


def never(table: Table) -> int:
    """The cost of what cannot be, in this table."""
    return _ANY if table.dtype == object else _WORD


def possible(table: Table) -> list[int]:
    """How many CPUs can be taken."""
    return [k for k, cost in enumerate(table) if cost < never(table)]


def only(table: Table, allowed: Sequence[int]) -> Table:
    """The same table where nothing but the allowed numbers of CPUs can be taken."""
    result = np.full(len(table), never(table), dtype=table.dtype)
    within = isinstance(allowed, range) and allowed.step == 1
    kept = slice(allowed[0], allowed[-1] + 1) if within else [k for k in allowed if k < len(table)]
    result[kept] = table[kept]
    return result


def add(a: Table, b: Table) -> Table:
    """Table of two parts taken together."""
    if len(a) < len(b):
        a, b = b, a
    if len(b) == 1:
        shifted: Table = np.minimum(a + b[0], never(a))
        return shifted
    if len(b) <= FEW or a.dtype == object:
        return _add_one_by_one(a, b)
    padded = np.full(len(a) + 2 * len(b) - 2, never(a), dtype=a.dtype)
    padded[len(b) - 1 : len(b) - 1 + len(a)] = a
    # A window view made by hand: numpy's own function costs more than the sums on tables of this size.
    rows, step = len(a) + len(b) - 1, a.itemsize
    windows: Table = np.ndarray((rows, len(b)), a.dtype, padded, 0, (step, step))
    total: Table = np.minimum((windows + b[::-1]).min(axis=1), never(a))
    return total


def _add_one_by_one(a: Table, b: Table) -> Table:
    total = np.full(len(a) + len(b) - 1, never(a), dtype=a.dtype)
    for k, cost in enumerate(b):
        window = total[k : k + len(a)]
        np.minimum(window, a + cost, out=window)
    return total


def add_all(tables: Sequence[Table]) -> Table:
    """Table of parts taken together."""
    return reduce(add, tables)


def either(tables: Sequence[Table]) -> Table:
    """Table of taking from one part only, whichever is best."""
    best = np.full(max(map(len, tables)), never(tables[0]), dtype=tables[0].dtype)
    for table in tables:
        np.minimum(best[: len(table)], table, out=best[: len(table)])
    return best


def split(tables: Sequence[Table], total: int) -> list[int] | None:
    """How to take ``total`` from the parts at least cost, as much as possible from the first, then the next.

    ``None`` when it cannot be taken.
    """
    suffixes = [tables[-1]]
    for table in reversed(tables[:-1]):
        suffixes.append(add(table, suffixes[-1]))
    best = suffixes.pop()
    if total >= len(best) or best[total] >= never(best):
        return None
    takes: list[int] = []
    for table in tables[:-1]:
        after = suffixes.pop()
        takes.append(largest_first(table, after, total, int(best[total])))
        total, best = total - takes[-1], after
    return [*takes, total]


def largest_first(table: Table, after: Table, total: int, cost: int) -> int:
    """The most that can be taken from one part where both parts together give ``total`` at this cost."""
    least = max(0, total - len(after) + 1)
    takes = range(min(total, len(table) - 1), least - 1, -1)
    return next(take for take in takes if table[take] + after[total - take] == cost)
