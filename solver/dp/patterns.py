"""How many NUMA nodes of which kind an allocation may use, and the metrics that this alone decides.

Where all cores are in one NUMA node that lies over several sockets, the sockets take the place of NUMA nodes.

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

MOST_PATTERNS = 20_000
"""With more than this the request is left to CP-SAT."""

Rows = NDArray[np.int64]
Column = NDArray[np.int64]
Indices = NDArray[np.intp]
Place = tuple[int, int]
Nodes = dict[int, list[CorePart]]


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one kind, in order: their positions on the machine, and the cores that may be taken of each.

    ``l3`` is -1 unless L3s hold whole nodes.
    """

    socket: int
    l3: int
    positions: tuple[int, ...]
    nodes: tuple[tuple[CorePart, ...], ...]


@dataclass(frozen=True)
class Patterns:
    """Patterns of one machine: each row says how many nodes of each kind are used.

    Nodes are NUMA nodes; or, ``by_socket``, the sockets of the only one.
    """

    problem: Problem
    demand: Demand
    by_socket: bool
    kinds: tuple[NodeKind, ...]

    @cached_property
    def rows(self) -> Rows:
        """All patterns that the rules about spans allow."""
        rows: Rows = np.indices([len(kind.nodes) + 1 for kind in self.kinds]).reshape(len(self.kinds), -1).T
        nodes, rules = rows.sum(axis=1), self.demand.rules
        numa_nodes = self._numa_nodes(rows)
        good = (nodes >= 1) & (nodes <= self.demand.cpus)
        good &= (numa_nodes >= rules.numa_least) & (numa_nodes <= rules.numa_most)
        if rules.one_socket:
            good &= self._sockets(rows) == 1
        if rules.one_l3:
            good &= (self._used(rows, [kind.l3 for kind in self.kinds]) if self.l3s_are_outer else nodes) == 1
        allowed: Rows = rows[good]
        return allowed

    def node_of(self, part: CorePart) -> int:
        """Position of the node that a core lies in."""
        return part.socket if self.by_socket else part.numa

    @property
    def l3s_are_outer(self) -> bool:
        """Whether L3s hold whole NUMA nodes, so that the pattern decides how many are used."""
        return self.kinds[0].l3 >= 0

    def _numa_nodes(self, rows: Rows) -> Column:
        return rows.sum(axis=1) if not self.by_socket else np.ones(len(rows), dtype=np.int64)

    def _sockets(self, rows: Rows) -> Column:
        return rows.sum(axis=1) if self.by_socket else self._used(rows, [kind.socket for kind in self.kinds])

    def _used(self, rows: Rows, domains: Sequence[int]) -> Column:
        """How many domains each pattern uses, given the domain of each kind."""
        found = [
            (rows[:, [i for i, own in enumerate(domains) if own == domain]] > 0).any(axis=1)
            for domain in set(domains)
        ]
        total: Column = np.sum(found, axis=0, dtype=np.int64)
        return total

    @cached_property
    def metrics(self) -> dict[str, Column]:
        """Metrics of spans, one entry per pattern."""
        nodes = self._numa_nodes(self.rows)
        return {
            "floor_shortfall": np.maximum(0, self.demand.floor - nodes),
            "numa_nodes": nodes,
            "sockets": self._sockets(self.rows),
            "numa_distance": self._distances(self.rows),
        }

    def _distances(self, rows: Rows) -> Column:
        machine, firsts = self.problem.machine, [kind.positions[0] for kind in self.kinds]
        total = np.zeros(len(rows), dtype=np.int64)
        if self.by_socket:
            return total
        for i, kind in enumerate(self.kinds):
            if len(kind.nodes) > 1:
                total += machine.both_ways(*kind.positions[:2]) * (rows[:, i] * (rows[:, i] - 1) // 2)
            for j in range(i):
                total += machine.both_ways(firsts[i], firsts[j]) * rows[:, i] * rows[:, j]
        return total


def patterns_of(problem: Problem, demand: Demand, parts: Sequence[CorePart]) -> Patterns | None:
    """The patterns over these cores; ``None`` where spans do not nest, or where there are too many patterns."""
    by_socket = _splits_by_socket(problem, demand)
    nodes: Nodes = {}
    for part in parts:
        nodes.setdefault(part.socket if by_socket else part.numa, []).append(part)
    homes = dict.fromkeys(nodes, (-1, -1)) if by_socket else _homes(problem, demand, nodes)
    if homes is None:
        return None
    positions = tuple(sorted(nodes))
    kinds = tuple(
        NodeKind(*home, tuple(alike), tuple(tuple(nodes[node]) for node in alike))
        for group in ((positions,) if by_socket else problem.machine.interchangeable(positions))
        for home, alike in _by_home(group, homes)
    )
    if prod(len(kind.nodes) + 1 for kind in kinds) > MOST_PATTERNS:
        return None
    return Patterns(problem, demand, by_socket, kinds)


def _splits_by_socket(problem: Problem, demand: Demand) -> bool:
    """Whether all cores are in one NUMA node that lies over several sockets, and no L3 does."""
    cores = [part.core for part in demand.parts]
    if not problem.l3s_nest or len({part.numa for part in demand.parts}) != 1:
        return False
    several = len({part.socket for part in demand.parts}) > 1
    return several and problem.machine.nests("l3", "socket", cores)


def _homes(problem: Problem, demand: Demand, nodes: Nodes) -> dict[int, Place] | None:
    """The socket of each NUMA node, and its L3 if that may be larger; ``None`` where a node lies over several."""
    outer, machine = not problem.l3s_nest, problem.machine
    cores = [part.core for own in nodes.values() for part in own]
    hybrid = outer and len({part.core_type for part in demand.parts}) > 1
    nested = machine.nests("numa", "socket", cores) and (not outer or machine.nests("numa", "l3", cores))
    if hybrid or not nested:
        return None
    return {node: (own[0].socket, own[0].l3 if outer else -1) for node, own in nodes.items()}


def _by_home(nodes: Sequence[int], homes: dict[int, Place]) -> Iterator[tuple[Place, list[int]]]:
    groups: dict[Place, list[int]] = {}
    for node in nodes:
        groups.setdefault(homes[node], []).append(node)
    yield from groups.items()
