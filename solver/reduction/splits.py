"""Tables of many parts of few kinds; and how to take from parts as the tie rule wants it: most from the first.

Parts of a kind have the same table, so only their number counts, and a later one never gives more than one
before it: the two could change places.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from solver.reduction.minplus import Table, add, entry, never

Part = TypeVar("Part", bound=Hashable)


class Sums(Generic[Part]):
    """Tables of several parts taken together, by how many of each kind they are; each is made once.

    ``one`` makes the table of a part of a kind.
    """

    def __init__(self, one: Callable[[Part], Table], dtype: type | np.dtype[Any]) -> None:
        self._one = one
        self._nothing: Table = np.zeros(1, dtype=dtype)
        self._alike: dict[tuple[Part, int], Table] = {}
        self._together: dict[tuple[tuple[Part, int], ...], Table] = {}

    def alike(self, kind: Part, count: int = 1) -> Table:
        """Table of so many parts of a kind."""
        if (kind, count) not in self._alike:
            self._alike[kind, count] = self._of(kind, count)
        return self._alike[kind, count]

    def _of(self, kind: Part, count: int) -> Table:
        if count < 2:
            return self._one(kind) if count else self._nothing
        if count % 2:
            return add(self.alike(kind, count - 1), self.alike(kind))
        return add(self.alike(kind, count // 2), self.alike(kind, count // 2))

    def together(self, counts: Mapping[Part, int]) -> Table:
        """Table of so many parts of each kind."""
        return self._all(tuple(counts.items()))

    def _all(self, counts: tuple[tuple[Part, int], ...]) -> Table:
        if counts not in self._together:
            first = self.alike(*counts[0]) if counts else self._nothing
            self._together[counts] = add(self._all(counts[1:]), first) if counts[1:] else first
        return self._together[counts]


@dataclass(frozen=True)
class _Step(Generic[Part]):
    """What the next part may give: ``alike`` parts of its kind and some others still have to give ``total``."""

    sums: Sums[Part]
    kind: Part
    alike: int
    others: Table
    total: int
    cost: int

    @property
    def one(self) -> Table:
        return self.sums.alike(self.kind)

    def share(self) -> int:
        """The most that the next part can give at this cost; usually all it has."""
        most = min(self.total, len(self.one) - 1)
        if self._can_give(most, 1):
            return most
        after = add(self.others, self.sums.alike(self.kind, self.alike - 1))
        least = max(0, self.total - len(after) + 1)
        costs = self.one[least : most + 1] + after[self.total - most : self.total - least + 1][::-1]
        return least + int(np.flatnonzero(costs == self.cost)[-1])

    def run(self, share: int, longest: int) -> int:
        """How many of the next parts, up to ``longest`` of this kind in a row, can give as much; usually all."""
        longest = min(longest, self.total // share)
        if self._can_give(share, longest):
            return longest
        return bisect_left(range(1, longest + 1), True, key=lambda count: not self._can_give(share, count))

    def _can_give(self, share: int, count: int) -> bool:
        rest = entry(self.others, self.sums.alike(self.kind, self.alike - count), self.total - count * share)
        return count * int(self.one[share]) + rest == self.cost


def split(sums: Sums[Part], kinds: Sequence[Part], total: int) -> list[int] | None:
    """How to take ``total`` from parts of these kinds at least cost, most from the first, then from the next.

    ``None`` when it cannot be taken.
    """
    counts, takes, left = Counter(kinds), dict.fromkeys(range(len(kinds)), 0), list(range(len(kinds)))
    whole = sums.together(counts)
    if not 0 <= total < len(whole) or whole[total] >= never(whole):
        return None
    cost = int(whole[total])
    while total:
        kind = kinds[left[0]]
        others = sums.together({other: count for other, count in counts.items() if count and other != kind})
        step = _Step(sums, kind, counts[kind], others, total, cost)
        count, share = counts[kind], step.share()
        if share:
            count = step.run(share, _run_of(kind, kinds, left))
            takes |= dict.fromkeys(left[:count], share)
            left = left[count:]
        else:
            left = [i for i in left if kinds[i] != kind]
        counts[kind] -= count
        total, cost = total - count * share, cost - count * int(step.one[share])
    return list(takes.values())


def _run_of(kind: Part, kinds: Sequence[Part], left: Sequence[int]) -> int:
    """How many of the parts left are of this kind before one of another comes."""
    return next((run for run, i in enumerate(left) if kinds[i] != kind), len(left))
