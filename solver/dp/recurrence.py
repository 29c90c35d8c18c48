"""The recurrence: what a request costs at least on a pattern, from the costs of single NUMA nodes.

Over the nodes of one kind, from the last to the first, for c of them used and k CPUs taken,

    cost[i][c][k] = min(cost[i+1][c][k] + idle_i, min over shares j of cost[i+1][c-1][k-j] + share_i[j])

and the kinds' costs add up by min-plus convolution. The shares of an even split all lie in a window of sizes.
"""

from collections.abc import Sequence
from functools import cached_property, reduce

import numpy as np

from solver.dp.patterns import Indices, Patterns
from solver.reduction.costs import Costs
from solver.reduction.minplus import Table, add, entry, inside, never, possible
from solver.reduction.shares import Shares, Window, in_steps

Pattern = Sequence[int]


class KindCosts:
    """Costs of taking CPUs from the NUMA nodes of one kind, with shares in one window.

    ``idle[i]``: what it costs not to use the i-th node; ``shares[i]``: what its share costs.
    """

    def __init__(self, tables: Sequence[Table], window: Window) -> None:
        self.idle = [table[:1] for table in tables]
        self.shares = [inside(table, window.least, window.width) for table in tables]
        self._width = window.width
        self._from: list[Table] = [np.zeros((1, 1), dtype=tables[0].dtype)]
        for idle, share in zip(reversed(self.idle), reversed(self.shares), strict=True):
            self._from.append(_with_node(self._from[-1], idle, share))

    def from_node(self, i: int, used: int) -> Table:
        """Table of exactly so many of the nodes from the i-th on; entry j stands for used · least + j CPUs."""
        return self._from[-1 - i][used, : used * self._width + 1]


def _with_node(later: Table, idle: Table, share: Table) -> Table:
    """A node before others: a table for each number of them that are used, one in each row."""
    rows, length = later.shape
    stack = np.full((rows + 1, length + len(share) - 1), never(later), dtype=later.dtype)
    stack[:-1, :length] = add(later, idle)
    np.minimum(stack[1:], add(later, share), out=stack[1:])
    return stack


class Recurrence:
    """What one request costs on each pattern of NUMA nodes, with one choice of cores."""

    def __init__(self, patterns: Patterns, costs: Costs) -> None:
        self.patterns, self.demand, self.costs = patterns, patterns.demand, costs
        table = costs.block if patterns.by_socket else costs.numa_node
        self.nodes = [list(map(table, kind.nodes)) for kind in patterns.kinds]
        self.nothing: Table = np.zeros(1, dtype=costs.packing.dtype)
        self._kinds: dict[Window, list[KindCosts]] = {}
        self._windows: dict[int, Sequence[Window]] = {}

    def kinds(self, window: Window) -> list[KindCosts]:
        """Costs of each kind, for shares in the window."""
        if window not in self._kinds:
            self._kinds[window] = [KindCosts(tables, window) for tables in self.nodes]
        return self._kinds[window]

    def windows(self, nodes: int) -> Sequence[Window]:
        """Windows that hold the shares of so many NUMA nodes: any shares, or the least uneven ones."""
        if nodes not in self._windows:
            self._windows[nodes] = self._windows_of(nodes)
        return self._windows[nodes]

    def _windows_of(self, nodes: int) -> Sequence[Window]:
        if self._any_shares:
            largest = max(len(table) for tables in self.nodes for table in tables)
            return [Window(1, min(self.demand.cpus, largest) - 1)]
        step, width = self.step, self._width
        if width is None:
            return []
        leasts = {least for shares in self._universes for least in shares.windows(nodes, width)}
        return [Window(least * step, width * step) for least in sorted(leasts)]

    @property
    def _any_shares(self) -> bool:
        """Whether shares may differ as they like; the sockets of one NUMA node count as one share."""
        return self.demand.request.policy == "packed" or self.patterns.by_socket

    @property
    def step(self) -> int:
        """Shares are multiples of this: whole cores, where they are demanded."""
        return self.demand.unit if self.demand.request.full_cores else 1

    @property
    def unevenness(self) -> int:
        """The least unevenness that the NUMA nodes allow, where it counts."""
        return 0 if self._width is None else (self._width - 1) * self.step

    @cached_property
    def _width(self) -> int | None:
        """By how many steps shares must be allowed to differ."""
        widths = [width for shares in self._universes if (width := shares.least_width()) is not None]
        least = min(widths, default=None)
        return None if least is None or (self.demand.rules.even and least > 1) else least

    @cached_property
    def _universes(self) -> list[Shares]:
        """The shares that NUMA nodes can give; one socket, or one outer L3, at a time where the rules say so."""
        if self._any_shares or self.demand.cpus % self.step:
            return []
        rules, groups = self.demand.rules, dict[tuple[int, int], list[int]]()
        for kind, tables in zip(self.patterns.kinds, self.nodes, strict=True):
            home = (kind.socket if rules.one_socket else 0, kind.l3 if rules.one_l3 else 0)
            groups.setdefault(home, []).extend(in_steps(possible(table), self.step) or 0 for table in tables)
        most = 1 if rules.one_l3 and not self.patterns.l3s_are_outer else rules.numa_most
        total = self.demand.cpus // self.step
        return [Shares(tuple(sizes), total, rules.numa_least, most) for sizes in groups.values() if any(sizes)]

    def fitting(self) -> Indices:
        """The patterns, by position, whose NUMA nodes have as many CPUs as are asked for."""
        room = np.zeros(len(self.patterns.rows), dtype=np.int64)
        for tables, used in zip(self.nodes, self.patterns.rows.T, strict=True):
            sizes = sorted((len(table) - 1 for table in tables), reverse=True)
            room += np.cumsum([0, *sizes])[used]
        return np.flatnonzero(room >= self.demand.cpus)

    def cost(self, pattern: Pattern, window: Window) -> int | None:
        """The least packed cost of the request on the pattern; ``None`` where it does not fit."""
        tables = [kind.from_node(0, used) for kind, used in zip(self.kinds(window), pattern, strict=True)]
        least = self.cost_of(tables, pattern, window)
        return None if least >= never(self.nothing) else least + self.cost_of_pattern(pattern)

    def cost_of(self, tables: Sequence[Table], pattern: Pattern, window: Window) -> int:
        """The cost of the whole request, given cost tables for the parts of a pattern."""
        *some, last = sorted(tables, key=len)
        need = self.demand.cpus - sum(pattern) * window.least
        return entry(reduce(add, some, self.nothing), last, need)

    def cost_of_pattern(self, pattern: Pattern) -> int:
        """Costs that depend on the pattern alone: outer L3s, and NUMA nodes without a table."""
        if not self.patterns.l3s_are_outer:
            return self._of_the_rest
        problem = self.patterns.problem
        l3s = {kind.l3 for kind, used in zip(self.patterns.kinds, pattern, strict=True) if used}
        free = sum((problem.machine.l3s[l3].mask & problem.free).bit_count() for l3 in l3s)
        fields = {"l3_caches": [len(l3s)], "l3_leftover": [free - self.demand.cpus]}
        return self._of_the_rest + int(self.costs.packing.pack(fields, 1)[0])

    @cached_property
    def _of_the_rest(self) -> int:
        """What NUMA nodes without a table cost: those without cores to take, and the one that sockets divide."""
        free, left = dict(enumerate(self.costs.numa_free)), 0
        if self.patterns.by_socket:
            home = self.demand.parts[0].numa
            left = free[home] = free[home] - self.demand.cpus
        else:
            tabled = {position for kind in self.patterns.kinds for position in kind.positions}
            free = {node: size for node, size in free.items() if node not in tabled}
        balance = sum(size**2 for size in free.values())
        return int(self.costs.packing.pack({"numa_balance": [balance], "numa_leftover": [left]}, 1)[0])
