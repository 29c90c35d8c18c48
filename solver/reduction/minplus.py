"""Exact tables of costs by min-plus convolution.

A table says for k = 0, 1, … what taking k CPUs costs at least. Lexicographic costs are packed into one integer
per entry, most important first (``Packing``): such an order does not change when the same cost is added on both
sides, so tables of parts add up to tables of wholes without losing exactness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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

    def pack(self, fields: Mapping[str, Sequence[int] | NDArray[np.int64]], length: int) -> Table:
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
    takes: list[int] = np.flatnonzero(table < never(table)).tolist()
    return takes


def only(table: Table, allowed: Sequence[int]) -> Table:
    """The same table where nothing but the allowed numbers of CPUs can be taken."""
    result = np.full(len(table), never(table), dtype=table.dtype)
    kept = [k for k in allowed if k < len(table)]
    result[kept] = table[kept]
    return result


def inside(table: Table, least: int, width: int) -> Table:
    """What taking ``least`` to ``least + width`` CPUs costs: entry j stands for ``least + j`` of them."""
    kept = table[least : least + width + 1]
    return kept if len(kept) else np.full(1, never(table), dtype=table.dtype)


def add(a: Table, b: Table) -> Table:
    """Table of two parts taken together. ``a`` may be a stack of tables, one in each row."""
    if a.ndim == 1 and len(a) < len(b):
        a, b = b, a
    length, few = a.shape[-1], len(b)
    if few == 1 or length == 1:
        shifted: Table = np.minimum(a + b, never(a))
        return shifted
    if few <= FEW or a.dtype == object:
        return _add_one_by_one(a, b)
    padded = np.full((*a.shape[:-1], length + 2 * few - 2), never(a), dtype=a.dtype)
    padded[..., few - 1 : few - 1 + length] = a
    # A window view made by hand: numpy's own function costs more than the sums on tables of this size.
    shape = (*a.shape[:-1], length + few - 1, few)
    windows: Table = np.ndarray(shape, a.dtype, padded, 0, (*padded.strides, a.itemsize))
    total: Table = np.minimum((windows + b[::-1]).min(axis=-1), never(a))
    return total


def _add_one_by_one(a: Table, b: Table) -> Table:
    length = a.shape[-1]
    total = np.full((*a.shape[:-1], length + len(b) - 1), never(a), dtype=a.dtype)
    for k, cost in enumerate(b):
        window = total[..., k : k + length]
        np.minimum(window, a + cost, out=window)
    return total


def entry(a: Table, b: Table, total: int) -> int:
    """One entry of the table of two parts taken together, for less than the whole of it."""
    least, most = max(0, total - len(b) + 1), min(total, len(a) - 1)
    if least > most:
        return never(a)
    return int(min((a[least : most + 1] + b[total - most : total - least + 1][::-1]).min(), never(a)))


def either(tables: Sequence[Table]) -> Table:
    """Table of taking from one part only, whichever is best."""
    best = np.full(max(map(len, tables)), never(tables[0]), dtype=tables[0].dtype)
    for table in tables:
        np.minimum(best[: len(table)], table, out=best[: len(table)])
    return best
