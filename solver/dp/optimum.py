"""The optimum of one request by dynamic programming, where spans nest.

Patterns of NUMA nodes are tried in the order of the metrics that they alone decide; the recurrence says what each
costs at least in the others, and the walk back which NUMA nodes that takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from models import Metrics
from solver.dp.patterns import Indices, Patterns, patterns_of
from solver.dp.recurrence import Pattern, Recurrence
from solver.dp.walk import first_nodes
from solver.problem import CorePart, Demand, Problem
from solver.reduction.costs import Costs
from solver.reduction.pinning import UsedDomains, pin
from solver.reduction.shares import Window
from solver.score import names

MOST_TRIALS = 2_000
"""With more patterns than this to add up the request is left to CP-SAT."""


@dataclass(frozen=True)
class Found:
    """The best metrics on some choice of cores and spans, and all patterns, windows and costs that have them."""

    recurrence: Recurrence
    metrics: Metrics
    choices: Sequence[tuple[Pattern, Window, int]]

    def nodes(self) -> tuple[int, ...]:
        """The first list of NUMA nodes that has these metrics."""
        return min(first_nodes(self.recurrence, *choice) for choice in self.choices)


def optimum(problem: Problem, demand: Demand) -> int | None:
    """The one best allocation of a request, as a mask; ``None`` where dynamic programming does not settle it.

    It does not where spans cross (an L3 over parts of NUMA nodes, a NUMA node over sockets), where there are too
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
        found += _best(Recurrence(patterns, costs))
    if not found:
        return None
    metrics = min((each.metrics for each in found), key=lambda metrics: tuple(metrics.values()))
    nodes = min(each.nodes() for each in found if each.metrics == metrics)
    return pin(costs, _used(found[0].recurrence.patterns, nodes), metrics)


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


def _best(recurrence: Recurrence) -> Iterator[Found]:
    """The best on these cores; with ``near``, which counts before all spans, the best for each choice of spans."""
    for group in _in_order(recurrence):
        choices = [
            (row, window, cost)
            for row in recurrence.patterns.rows[group].tolist()
            for window in recurrence.windows(sum(row))
            if (cost := recurrence.cost(row, window)) is not None
        ]
        if choices:
            least = min(cost for _, _, cost in choices)
            metrics = _metrics(recurrence, group[0], least)
            yield Found(recurrence, metrics, [choice for choice in choices if choice[2] == least])
            if recurrence.demand.request.near is None:
                return


def _in_order(recurrence: Recurrence) -> list[Indices]:
    """Patterns, by position, in groups of the same metrics of spans, best first."""
    fitting, metrics = recurrence.fitting(), recurrence.patterns.metrics
    columns = [metrics[name][fitting] for name in names(recurrence.demand.request) if name in metrics]
    order = np.lexsort(columns[::-1])
    starts = np.any([np.diff(column[order]) for column in columns], axis=0)
    return np.split(fitting[order], np.flatnonzero(starts) + 1)


def _metrics(recurrence: Recurrence, row: int, cost: int) -> Metrics:
    """All metrics of a pattern, by position, with a packed cost, in their order."""
    types = {part.core_type for kind in recurrence.patterns.kinds for node in kind.nodes for part in node}
    known = {name: int(column[row]) for name, column in recurrence.patterns.metrics.items()}
    known |= {"unevenness": recurrence.unevenness, "core_types": len(types)}
    packing = recurrence.costs.packing
    known |= {name: packing.value(name, cost) for name in packing.largest}
    return {name: known[name] for name in names(recurrence.demand.request)}
