"""What taking k CPUs from a core, an L3 or a block costs a request, in the metrics that such a choice decides.

Cores that offer as many CPUs, as many near ones and have as many free ones are interchangeable, so only their
number counts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from solver.problem import CorePart, CoreShape, Demand, Problem
from solver.reduction.minplus import Packing, Table, either, only
from solver.reduction.splits import Sums
from solver.score import names
from topologies.graph.symmetry import canonical_form

L3Kind = tuple[int | None, tuple[tuple[CoreShape, int], ...]]
"""An L3: how many CPUs of it are free, ``None`` where its use costs nothing, and its cores of each shape."""


class Costs:
    """Cost tables of one request, over the local metrics that its order has.

    ``l3s_add_up``: each L3 lies within one block or NUMA node, so that tables can say what using it costs.
    """

    def __init__(self, problem: Problem, demand: Demand, l3s_add_up: bool) -> None:
        self.problem, self.demand, self.l3s_add_up = problem, demand, l3s_add_up
        largest = self._largest()
        self.packing = Packing({name: largest[name] for name in names(demand.request) if name in largest})
        self.cores: Sums[CoreShape] = Sums(self._core, self.packing.dtype)
        self.l3s: Sums[L3Kind] = Sums(self._l3, self.packing.dtype)
        self._nodes: dict[tuple[int, ...], Table] = {}

    def _largest(self) -> dict[str, int]:
        """The largest total of each metric that is a sum over cores, L3s and NUMA nodes."""
        free, cpus = self.problem.free.bit_count(), self.demand.cpus
        return {
            "outside_near": cpus,
            "cores": cpus,
            "doubled_threads": cpus,
            "l3_caches": len(self.problem.machine.l3s),
            "numa_leftover": free,
            "numa_balance": sum(size**2 for size in self.numa_free),
            "l3_leftover": free,
            "split_cores": len(self.demand.parts),
        }

    def _core(self, shape: CoreShape) -> Table:
        size, near, free = shape
        takes = range(size + 1)
        table = self.packing.pack(
            {
                "outside_near": [max(0, take - near) for take in takes],
                "cores": [min(take, 1) for take in takes],
                "doubled_threads": [max(0, take - 1) for take in takes],
                "split_cores": [int(0 < take < free) for take in takes],
            },
            size + 1,
        )
        if self.demand.request.full_cores:
            return only(table, [0, size])
        return only(table, [0, 1]) if self.demand.rules.one_thread else table

    def l3_kind(self, parts: Sequence[CorePart]) -> L3Kind:
        """The kind of an L3, given by its cores: L3s of one kind have the same cost table."""
        l3 = parts[0].l3
        left = self._l3_free[l3] if l3 >= 0 and self.l3s_add_up else None
        return left, canonical_form(part.shape for part in parts)

    def _l3(self, kind: L3Kind) -> Table:
        """Table of an L3's cores, with what using the L3 costs where L3s add up."""
        left, shapes = kind
        table = self.cores.together(dict(shapes))
        if left is None:
            return table
        leftover = left - np.arange(len(table))
        used = self.packing.pack({"l3_caches": [1] * len(table), "l3_leftover": leftover}, len(table))
        used[0] = 0
        return table + used

    @cached_property
    def _l3_free(self) -> dict[int, int]:
        free = self.problem.free
        sizes = {i: (l3.mask & free).bit_count() for i, l3 in enumerate(self.problem.machine.l3s)}
        return sizes | {-1: 0}

    def numa_node(self, parts: Sequence[CorePart]) -> Table:
        """Table of a NUMA node's cores, with what is left of the node."""
        key = tuple(part.core for part in parts)
        if key not in self._nodes:
            self._nodes[key] = self._numa_node(parts)
        return self._nodes[key]

    def _numa_node(self, parts: Sequence[CorePart]) -> Table:
        table = self.block(parts)
        left = self.numa_free[parts[0].numa] - np.arange(len(table))
        balance = self.packing.pack({"numa_balance": left**2}, len(table))
        left[0] = 0
        return table + balance + self.packing.pack({"numa_leftover": left}, len(table))

    @cached_property
    def numa_free(self) -> list[int]:
        """How many CPUs of each NUMA node are free."""
        return [(node.mask & self.problem.free).bit_count() for node in self.problem.machine.numa_nodes]

    def block(self, parts: Iterable[CorePart]) -> Table:
        """Table of a block's cores, over its L3s."""
        kinds = Counter(map(self.l3_kind, by_l3(parts)))
        return either(list(map(self.l3s.alike, kinds))) if self.demand.rules.one_l3 else self.l3s.together(kinds)


def by_l3(parts: Iterable[CorePart]) -> list[list[CorePart]]:
    """The cores of each L3, L3s in order of their lowest CPU."""
    groups: dict[int, list[CorePart]] = {}
    for part in parts:
        groups.setdefault(part.l3, []).append(part)
    return [groups[l3] for l3 in sorted(groups)]
