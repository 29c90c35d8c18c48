"""The optimum of one request without search, where spans nest: patterns of NUMA nodes, and tables for the rest.

Patterns are tried in the order of the metrics that they alone decide. For each, tables over the nodes of a kind
(with exactly c of them used) add up to what the request costs at least. An even split has all its shares within
a window of sizes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations

import numpy as np

from models import Metrics
from solver.problem import CorePart, Demand, Problem
from solver.score import slots
from solver.tables.costs import Costs
from solver.tables.minplus import Table, add, entry, inside, never, possible
from solver.tables.patterns import Indices, Patterns, patterns_of
from solver.tables.pin import UsedDomains, pin
from solver.tables.windows import Shares, Window, in_steps

MOST_TRIALS = 2_000
"""Tables of patterns that are added up before the request is left to CP-SAT."""

Pattern = Sequence[int]


class KindTables:
    """Tables over the NUMA nodes of one kind, for shares in one window.

    ``idle[i]``: what it costs not to use the i-th node; ``shares[i]``: what its share costs.
    """

    def __init__(self, tables: Sequence[Table], window: Window) -> None:
        self.idle = [table[:1] for table in tables]
        self.shares = [inside(table, window.least, window.width) for table in tables]
        self._width = window.width
        self._stacks: list[Table] = [np.zeros((1, 1), dtype=tables[0].dtype)]
        for idle, share in zip(reversed(self.idle), reversed(self.shares), strict=True):
            self._stacks.append(_with_node(self._stacks[-1], idle, share))

    def from_node(self, i: int, used: int) -> Table:
        """Table of exactly so many of the nodes from the i-th on; entry j stands for used · least + j CPUs."""
        return self._stacks[-1 - i][used, : used * self._width + 1]


def _with_node(later: Table, idle: Table, share: Table) -> Table:
    """A node before others: a table for each number of them that are used, one in each row."""
    rows, length = later.shape
    stack = np.full((rows + 1, length + len(share) - 1), never(later), dtype=later.dtype)
    stack[:-1, :length] = add(later, idle)
    np.minimum(stack[1:], add(later, share), out=stack[1:])
    return stack


class Tables:
    """All tables of one request on one choice of cores."""

    def __init__(self, patterns: Patterns, costs: Costs) -> None:
        self.patterns, self.demand, self.costs = patterns, patterns.demand, costs
        table = costs.block if patterns.by_socket else costs.numa_node
        self.nodes = [list(map(table, kind.nodes)) for kind in patterns.kinds]
        self._nothing: Table = np.zeros(1, dtype=costs.packing.dtype)
        self._kinds: dict[Window, list[KindTables]] = {}
        self._windows: dict[int, Sequence[Window]] = {}

    def kinds(self, window: Window) -> list[KindTables]:
        """Tables per kind, for shares in the window."""
        if window not in self._kinds:
            self._kinds[window] = [KindTables(tables, window) for tables in self.nodes]
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
        return None if least is None or (self.demand.spans.even and least > 1) else least

    @cached_property
    def _universes(self) -> list[Shares]:
        """The shares that NUMA nodes can give; one socket, or one outer L3, at a time where the rules say so."""
        if self._any_shares or self.demand.cpus % self.step:
            return []
        rules, groups = self.demand.spans, dict[tuple[int, int], list[int]]()
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
        least = self._at(tables, pattern, window)
        return None if least >= never(self._nothing) else least + self._of_pattern(pattern)

    def _at(self, tables: Sequence[Table], pattern: Pattern, window: Window) -> int:
        """What all that is asked for costs, with such tables of the parts of a pattern."""
        *some, last = sorted(tables, key=len)
        need = self.demand.cpus - sum(pattern) * window.least
        return entry(reduce(add, some, self._nothing), last, need)

    def _of_pattern(self, pattern: Pattern) -> int:
        """Costs that the pattern decides: outer L3s, and NUMA nodes that have no table."""
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

    def first_nodes(self, pattern: Pattern, window: Window, cost: int) -> tuple[int, ...]:
        """The lexicographically smallest list of NUMA nodes of this pattern that has this cost."""
        kinds, left = self.kinds(window), list(pattern)
        if all(used in (0, len(kind.idle)) for kind, used in zip(kinds, pattern, strict=True)):
            return tuple(position for position, k in self._places if pattern[k])
        target = cost - self._of_pattern(pattern)
        chosen: list[int] = []
        at, taken = [0] * len(kinds), self._nothing
        for position, k in self._places:
            kind, i = kinds[k], at[k]
            at[k] += 1
            fewer, used = [count - (j == k) for j, count in enumerate(left)], add(taken, kind.shares[i])
            if (
                fewer[k] >= 0
                and self._at([used, *map(KindTables.from_node, kinds, at, fewer)], pattern, window) == target
            ):
                chosen.append(position)
                left, taken = fewer, used
            else:
                taken = add(taken, kind.idle[i])
        return tuple(chosen)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """NUMA nodes in order, each with its kind."""
        return sorted((position, k) for k, kind in enumerate(self.patterns.kinds) for position in kind.positions)


@dataclass(frozen=True)
class Found:
    """The best metrics on some choice of cores and spans, and all patterns, windows and costs that have them."""

    tables: Tables
    metrics: Metrics
    choices: Sequence[tuple[Pattern, Window, int]]

    def nodes(self) -> tuple[int, ...]:
        """The first list of NUMA nodes that has these metrics."""
        return min(self.tables.first_nodes(*choice) for choice in self.choices)


def optimum(problem: Problem, demand: Demand) -> int | None:
    """The one best allocation of a request, as a mask; ``None`` where tables do not settle it.

    They do not where spans cross (an L3 over parts of NUMA nodes, a NUMA node over sockets), where there are too
    many patterns, where cores of unequal size are to be split evenly, and where nothing can be placed at all.
    """
    if not _shares_are_in_steps(demand):
        return None
    found: list[Found] = []
    costs = Costs(problem, demand, l3s_add_up=problem.l3s_nest)
    for parts in _core_type_choices(demand):
        patterns = patterns_of(problem, demand, parts)
        if patterns is None or len(patterns.rows) > MOST_TRIALS:
            return None
        found += _best(Tables(patterns, costs))
    if not found:
        return None
    metrics = min((each.metrics for each in found), key=lambda metrics: tuple(metrics.values()))
    nodes = min(each.nodes() for each in found if each.metrics == metrics)
    return pin(costs, _used(found[0].tables.patterns, nodes), metrics)


def _shares_are_in_steps(demand: Demand) -> bool:
    """Whether shares can be counted in one step: where they are to be even, whole cores must be of one size."""
    even_cores = demand.request.policy == "distributed" and demand.request.full_cores
    return not even_cores or all(part.size == demand.unit for part in demand.parts)


def _core_type_choices(demand: Demand) -> Iterator[list[CorePart]]:
    """The cores of each choice of core types."""
    types = sorted({part.core_type for part in demand.parts})
    for count in range(1, len(types) + 1):
        for chosen in combinations(types, count):
            yield [part for part in demand.parts if part.core_type in chosen]


def _used(patterns: Patterns, nodes: tuple[int, ...]) -> UsedDomains:
    parts = [part for part in patterns.demand.parts if patterns.node_of(part) in nodes]
    levels = ({part.numa for part in parts}, {part.socket for part in parts}, {part.l3 for part in parts})
    numa_nodes, sockets, l3s = (tuple(sorted(level)) for level in levels)
    return UsedDomains(numa_nodes, sockets, None if patterns.problem.l3s_nest else l3s)


def _best(tables: Tables) -> Iterator[Found]:
    """The best on these cores; with ``near``, which counts before all spans, the best for each choice of spans."""
    for group in _in_order(tables):
        choices = [
            (row, window, cost)
            for row in tables.patterns.rows[group].tolist()
            for window in tables.windows(sum(row))
            if (cost := tables.cost(row, window)) is not None
        ]
        if choices:
            least = min(cost for _, _, cost in choices)
            metrics = _metrics(tables, group[0], least)
            yield Found(tables, metrics, [choice for choice in choices if choice[2] == least])
            if tables.demand.request.near is None:
                return


def _in_order(tables: Tables) -> list[Indices]:
    """Patterns, by position, in groups of the same metrics of spans, best first."""
    fitting, metrics = tables.fitting(), tables.patterns.metrics
    columns = [metrics[name][fitting] for name in slots(tables.demand.request) if name in metrics]
    order = np.lexsort(columns[::-1])
    starts = np.any([np.diff(column[order]) for column in columns], axis=0)
    return np.split(fitting[order], np.flatnonzero(starts) + 1)


def _metrics(tables: Tables, row: int, cost: int) -> Metrics:
    """All metrics of a pattern, by position, with a packed cost, in their order."""
    types = {part.core_type for kind in tables.patterns.kinds for node in kind.nodes for part in node}
    known = {name: int(column[row]) for name, column in tables.patterns.metrics.items()}
    known |= {"unevenness": tables.unevenness, "core_types": len(types)}
    packing = tables.costs.packing
    known |= {name: packing.value(name, cost) for name in packing.largest}
    return {name: known[name] for name in slots(tables.demand.request) if name is not None}
