"""What taking k CPUs from a core, an L3 or a block costs a request, in the metrics that such a choice decides.

Cores that offer as many CPUs, as many near ones and have as many free ones are interchangeable, so only their
number counts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from solver.problem import CorePart, Demand, Problem, Shape
from solver.score import slots
from solver.tables.minplus import Packing, Table, add, add_all, either, only

LOCAL_METRICS = (
    "outside_near",
    "cores",
    "doubled_threads",
    "l3_caches",
    "numa_leftover",
    "numa_balance",
    "l3_leftover",
    "split_cores",
)
"""Metrics that are sums of what single cores, L3s and NUMA nodes cost."""


class Costs:
    """Cost tables of one request, over the local metrics that its order has.

    ``l3s_add_up``: each L3 lies within one block or NUMA node, so that tables can say what using it costs.
    """

    def __init__(self, problem: Problem, demand: Demand, l3s_add_up: bool) -> None:
        self.problem, self.demand, self.l3s_add_up = problem, demand, l3s_add_up
        order = [name for name in slots(demand.request) if name in LOCAL_METRICS]
        self.packing = Packing({name: self._largest(name) for name in order})
        self._sums: dict[Shape, list[Table]] = {}
        nothing: Table = np.zeros(1, dtype=self.packing.dtype)
        self._together: dict[tuple[tuple[Shape, int], ...], Table] = {(): nothing}
        self._l3s: dict[tuple[object, ...], Table] = {}
        self._nodes: dict[tuple[int, ...], Table] = {}

    def _largest(self, metric: str) -> int:
        free = self.problem.free.bit_count()
        squares = sum(size**2 for size in self.numa_free)
        most = {
            "l3_caches": len(self.problem.machine.l3s),
            "numa_leftover": free,
            "numa_balance": squares,
            "l3_leftover": free,
            "split_cores": len(self.demand.parts),
        }
        return most.get(metric, self.demand.cpus)

    def core(self, part: CorePart) -> Table:
        """Table of one core."""
        return self._alike(part.shape, 1)

    def _one(self, shape: Shape) -> Table:
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
        return only(table, [0, 1]) if self.demand.spans.one_thread else table

    def cores(self, shapes: Counter[Shape]) -> Table:
        """Table of some cores together, so many of each shape."""
        key = tuple(sorted(shapes.items()))
        if key not in self._together:
            self._together[key] = add_all([self._alike(shape, count) for shape, count in key])
        return self._together[key]

    def _alike(self, shape: Shape, count: int) -> Table:
        sums = self._sums.get(shape) or self._sums.setdefault(shape, [self._one(shape)])
        while len(sums) < count:
            sums.append(add(sums[-1], sums[0]))
        return sums[count - 1]

    def l3(self, parts: Sequence[CorePart]) -> Table:
        """Table of one L3's cores, with what using the L3 costs where L3s add up."""
        shapes = Counter(part.shape for part in parts)
        left = self._l3_free[parts[0].l3]
        key = (left, *sorted(shapes.items()))
        if key not in self._l3s:
            table = self.cores(shapes).copy()
            if parts[0].l3 >= 0 and self.l3s_add_up:
                used = {"l3_caches": [1], "l3_leftover": [left]}
                table[1:] += self.packing.pack(used, 1)[0]
                table -= self.packing.pack({"l3_leftover": range(len(table))}, len(table))
                table[0] = 0
            self._l3s[key] = table
        return self._l3s[key]

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
        free, takes = self.numa_free[parts[0].numa], range(len(table))
        left = {
            "numa_leftover": [free - take if take else 0 for take in takes],
            "numa_balance": [(free - take) ** 2 for take in takes],
        }
        return table + self.packing.pack(left, len(table))

    @cached_property
    def numa_free(self) -> list[int]:
        """How many CPUs of each NUMA node are free."""
        return [(node.mask & self.problem.free).bit_count() for node in self.problem.machine.numa_nodes]

    def block(self, parts: Iterable[CorePart]) -> Table:
        """Table of a block's cores, over its L3s."""
        tables = [self.l3(group) for group in by_l3(parts)]
        return either(tables) if self.demand.spans.one_l3 else add_all(tables)


def by_l3(parts: Iterable[CorePart]) -> list[list[CorePart]]:
    """The cores of each L3, L3s in order of their lowest CPU."""
    groups: dict[int, list[CorePart]] = {}
    for part in parts:
        groups.setdefault(part.l3, []).append(part)
    return [groups[l3] for l3 in sorted(groups)]
