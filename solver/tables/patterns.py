"""How many NUMA nodes of which kind an allocation may use, and the metrics that this alone decides.

NUMA nodes of one kind lie in one socket, share an outer L3 if L3s are larger than NUMA nodes, and have the same
distances to all others: which of them are used does not matter to spans, only how many.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from solver.problem import CorePart, Demand, Problem
from solver.tables.twins import both_ways, interchangeable

MOST_PATTERNS = 20_000
"""More than this and the tables leave the request to CP-SAT."""

Rows = NDArray[np.int64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """NUMA nodes of one kind: the cores of each that may be taken, nodes in order; ``l3`` is -1 unless outer."""

    socket: int
    l3: int
    nodes: tuple[tuple[CorePart, ...], ...]

    @property
    def positions(self) -> list[int]:
        """The nodes' positions in the machine's tuple."""
        return [parts[0].numa for parts in self.nodes]


@dataclass(frozen=True)
class Patterns:
    """Patterns of one machine: each row says how many nodes of each kind are used."""

    problem: Problem
    demand: Demand
    kinds: tuple[Kind, ...]

    @cached_property
    def rows(self) -> Rows:
        """All patterns that the rules about spans allow."""
        rows: Rows = np.indices([len(kind.nodes) + 1 for kind in self.kinds]).reshape(len(self.kinds), -1).T
        nodes, rules = rows.sum(axis=1), self.demand.spans
        good = (nodes >= rules.numa_least) & (nodes <= min(rules.numa_most, self.demand.cpus))
        if rules.one_socket:
            good &= self.used(rows, [kind.socket for kind in self.kinds]) == 1
        if rules.one_l3:
            good &= (self.used(rows, [kind.l3 for kind in self.kinds]) if self.l3s_are_outer else nodes) == 1
        allowed: Rows = rows[good]
        return allowed

    @property
    def l3s_are_outer(self) -> bool:
        """Whether L3s hold whole NUMA nodes, so that the pattern decides how many are used."""
        return self.kinds[0].l3 >= 0

    def used(self, rows: Rows, domains: Sequence[int]) -> NDArray[np.int64]:
        """How many domains each pattern uses, given the domain of each kind."""
        found = [
            (rows[:, [i for i, own in enumerate(domains) if own == domain]] > 0).any(axis=1)
            for domain in set(domains)
        ]
        total: NDArray[np.int64] = np.sum(found, axis=0, dtype=np.int64)
        return total

    @cached_property
    def metrics(self) -> dict[str, NDArray[np.int64]]:
        """Metrics of spans, one entry per pattern."""
        rows, nodes = self.rows, self.rows.sum(axis=1)
        return {
            "floor_shortfall": np.maximum(0, self.demand.floor - nodes),
            "numa_nodes": nodes,
            "sockets": self.used(rows, [kind.socket for kind in self.kinds]),
            "numa_distance": self._distances(rows),
        }

    def _distances(self, rows: Rows) -> NDArray[np.int64]:
        machine, firsts = self.problem.machine, [kind.positions[0] for kind in self.kinds]
        total = np.zeros(len(rows), dtype=np.int64)
        for i, kind in enumerate(self.kinds):
            if len(kind.nodes) > 1:
                total += both_ways(machine, *kind.positions[:2]) * (rows[:, i] * (rows[:, i] - 1) // 2)
            for j in range(i):
                total += both_ways(machine, firsts[i], firsts[j]) * rows[:, i] * rows[:, j]
        return total


def patterns_of(problem: Problem, demand: Demand, parts: Sequence[CorePart]) -> Patterns | None:
    """The patterns over these cores; ``None`` where spans do not nest, or where there are too many patterns."""
    nodes: dict[int, list[CorePart]] = {}
    for part in parts:
        nodes.setdefault(part.numa, []).append(part)
    outer = not problem.l3s_nest
    homes = {numa: {(part.socket, part.l3 if outer else -1) for part in node} for numa, node in nodes.items()}
    types = {part.core_type for part in demand.parts}
    if any(len(home) > 1 for home in homes.values()) or (outer and len(types) > 1):
        return None
    kinds = tuple(
        Kind(*home, tuple(tuple(nodes[numa]) for numa in alike))
        for group in interchangeable(problem.machine, tuple(sorted(nodes)))
        for home, alike in _by_home(group, homes)
    )
    if prod(len(kind.nodes) + 1 for kind in kinds) > MOST_PATTERNS:
        return None
    return Patterns(problem, demand, kinds)


def _by_home(
    nodes: Sequence[int], homes: dict[int, set[tuple[int, int]]]
) -> Iterator[tuple[tuple[int, int], list[int]]]:
    groups: dict[tuple[int, int], list[int]] = {}
    for node in nodes:
        (home,) = homes[node]
        groups.setdefault(home, []).append(node)
    yield from groups.items()
