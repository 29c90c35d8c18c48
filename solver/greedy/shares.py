"""Which NUMA nodes share a request, and which of them give the CPUs that do not divide evenly.

The kubelet tries every set of NUMA nodes and, for each, every set of its nodes for the remainder, and keeps the
first that leaves the least standard deviation of free CPUs, rounded to three decimals. The sum of what stays
free does not depend on the choice, so the least deviation is the least sum of squares, and what a node takes off
that sum does not depend on the others. So nothing is tried here: ``subsets`` finds the most that can be gained,
and the first set that gains as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from solver.greedy.moves import Move

MAX_STATES = 8_000_000
"""A choice that needs more states of ``subsets`` than this (0.2 s and 64 MB) is not made exactly."""


@dataclass(frozen=True)
class Split:
    """How many CPUs each NUMA node gives: ``base`` each, and ``groups`` more, by position; others give none."""

    base: int
    groups: dict[int, int]


def split_evenly(free: Sequence[int], cpus: int, group: int, fewest: int = 1) -> Split | None:
    """Even shares of ``cpus``, a multiple of ``group``, from the fewest NUMA nodes that can give them.

    ``free``: free CPUs of each NUMA node, in the kubelet's order. ``None`` where there is no even split over
    ``fewest`` nodes or more.
    """
    for count in range(fewest, min(cpus // group, len(free)) + 1):
        base = cpus // (count * group) * group
        groups = sorted((node // group for node in free if node >= base), reverse=True)[:count]
        if len(groups) == count and sum(groups) * group >= cpus:
            return _Choice(tuple(free), count, base, (cpus - base * count) // group, group).split()
    return None


@dataclass(frozen=True)
class _Choice:
    """Choose ``count`` nodes that give ``base`` CPUs each, and those of them that give ``extra`` groups in turns.

    The turns of a set end at some level: nodes with more groups than that gave ``level`` of them, the first ones
    in order one more, and nodes with fewer gave all they had.
    """

    free: tuple[int, ...]
    count: int
    base: int
    extra: int
    group: int

    def split(self) -> Split:
        levels = range(max(1, min(self.extra, max(map(self._groups_left, range(len(self.free)))))))
        if 2 * len(self.free) * (self.count + 1) * (self.extra + 1) * len(levels) > MAX_STATES:
            return self._by_free()
        # Imported here because numpy costs a command more than most answers, which need no choice.
        from solver.greedy.subsets import Subsets

        members = Subsets([self._chosen(level) for level in levels], self.count, self.extra)
        gain = self._as_good_as(members.most(self.count))
        nodes = members.first(self.count, gain)
        gain -= sum(self._gain_of_base(node) for node in nodes)
        givers = Subsets(
            [[self._turns(node, level) for node in nodes] for level in levels], self.count, self.extra
        )
        size = max(size for size in range(self.count + 1) if givers.most(size) >= gain)
        return self._in_turns(nodes, [nodes[i] for i in givers.first(size, gain)])

    def _by_free(self) -> Split:
        """Stands in on machines too large for the exact choice: the nodes with the most free CPUs."""
        nodes = sorted(range(len(self.free)), key=lambda i: (-(self.free[i] // self.group), -self.free[i], i))
        return self._in_turns(nodes[: self.count], nodes[: self.count])

    def _in_turns(self, nodes: list[int], givers: list[int]) -> Split:
        groups, missing = dict.fromkeys(nodes, 0), self.extra
        while missing:
            for node in givers:
                if missing and groups[node] < self._groups_left(node):
                    groups[node] += 1
                    missing -= 1
        return Split(self.base, groups)

    def _groups_left(self, node: int) -> int:
        return max(0, self.free[node] - self.base) // self.group

    def _gain_of_base(self, node: int) -> int:
        """What giving ``base`` takes off the square of the node's free CPUs."""
        return self.base * (2 * self.free[node] - self.base)

    def _gain_of_groups(self, node: int, groups: int) -> int:
        """What giving so many groups takes off the square of what ``base`` has left."""
        return groups * self.group * (2 * (self.free[node] - self.base) - groups * self.group)

    def _turns(self, node: int, level: int) -> list[Move]:
        """How many groups the node gives when it takes part in the turns; phase 1: no more of one above level."""
        most = self._groups_left(node)
        if most == 0:
            return []
        ways = [(most, 0, 0), (most, 1, 1)] if most <= level else [(level + 1, 0, 0), (level, 0, 1), (level, 1, 1)]
        return [Move(*way, self._gain_of_groups(node, way[0])) for way in ways]

    def _chosen(self, level: int) -> list[list[Move]]:
        """Of each node, what it may give when it is one of the ``count`` nodes."""
        return [self._ways(node, level) if free >= self.base else [] for node, free in enumerate(self.free)]

    def _ways(self, node: int, level: int) -> list[Move]:
        idle, gain = [Move(0, 0, 0, 0), Move(0, 1, 1, 0)], self._gain_of_base(node)
        ways = dict.fromkeys(idle + self._turns(node, level)) if self.extra else idle[:1]
        return [Move(way.groups, way.before, way.after, way.gain + gain) for way in ways]

    def _as_good_as(self, most: int) -> int:
        """The least gain that leaves the same deviation as the most, once that is rounded to three decimals.

        In thousandths, with ``mean`` rounded half up as the kubelet rounds it, the deviation is the root of
        (sum of squares of 1000 x - mean) / nodes, rounded likewise; all in whole numbers.
        """
        nodes, before = len(self.free), sum(free * free for free in self.free)
        left = sum(self.free) - self.base * self.count - self.extra * self.group
        mean = (2000 * left + nodes) // (2 * nodes)
        shift = nodes * mean * mean - 2000 * mean * left
        deviation = (isqrt(4 * (1_000_000 * (before - most) + shift) // nodes) + 1) // 2
        largest = (nodes * (2 * deviation + 1) ** 2 - 1) // 4
        return before - (largest - shift) // 1_000_000
