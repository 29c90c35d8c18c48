"""The tie rule on fixed sets of domains: from counts to CPU numbers, by exact tables.

Which NUMA nodes, sockets and (where they do not nest) L3s are used is given; what remains is a sum over cores,
so the cheapest way that takes most from the first NUMA node, then the next, then so by L3, by core and by CPU
number is found level by level.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from models import Metrics, to_mask
from solver.problem import CorePart, Demand
from solver.tables.costs import Costs, by_l3
from solver.tables.minplus import Table, largest_first, never, only, split


@dataclass(frozen=True)
class UsedDomains:
    """Positions of the domains that an allocation uses; ``l3s`` is ``None`` where L3s nest in NUMA nodes."""

    numa_nodes: tuple[int, ...]
    sockets: tuple[int, ...]
    l3s: tuple[int, ...] | None

    def hold(self, part: CorePart) -> bool:
        """Whether the core lies in used domains only."""
        inside = part.numa in self.numa_nodes and part.socket in self.sockets
        return inside and (self.l3s is None or part.l3 in self.l3s)


def pin(costs: Costs, used: UsedDomains, metrics: Metrics) -> int | None:
    """The one allocation, as a mask, of these metrics on these domains; ``None`` if there is none.

    ``costs`` are those of the request where L3s add up if they nest in NUMA nodes.
    """
    problem, demand = costs.problem, costs.demand
    scorer, free = problem.prepared.scorer, problem.free
    found = {
        mask
        for parts in _choices(demand, used, metrics)
        for shares in _windows(demand, used, metrics)
        if (mask := _pin(costs, parts, shares)) is not None
    }
    good = [mask for mask in found if scorer.metrics(free, demand.request, mask) == metrics]
    return min(good, key=scorer.tie_key, default=None)


def _choices(demand: Demand, used: UsedDomains, metrics: Metrics) -> Iterator[list[CorePart]]:
    """The cores on the used domains, for each choice of as many core types as the metrics say, and one L3."""
    inside = [part for part in demand.parts if used.hold(part)]
    types = sorted({part.core_type for part in inside})
    for chosen in combinations(types, metrics["core_types"]):
        parts = [part for part in inside if part.core_type in chosen]
        if {part.numa for part in parts} == set(used.numa_nodes):
            yield from by_l3(parts) if demand.spans.one_l3 else [parts]


def _windows(demand: Demand, used: UsedDomains, metrics: Metrics) -> list[range]:
    """Ranges that hold the shares of all used NUMA nodes, as uneven as the metrics say."""
    if demand.request.policy == "packed":
        return [range(1, demand.cpus + 1)]
    width, nodes = metrics["unevenness"] + demand.unit, len(used.numa_nodes)
    highest, lowest = demand.cpus // nodes, max(1, -(-demand.cpus // nodes) - width)
    return [range(least, least + width + 1) for least in range(lowest, highest + 1)]


def _pin(costs: Costs, parts: Sequence[CorePart], shares: range) -> int | None:
    nodes = _grouped(parts, lambda part: part.numa)
    whole = [costs.numa_node(node) for node in nodes]
    most = [min(len(table), shares.stop) - 1 for table in whole]
    if min(most) < shares.start or sum(most) < costs.demand.cpus:
        return None
    takes = split([only(table, shares) for table in whole], costs.demand.cpus)
    if takes is None:
        return None
    return sum(place(costs, node, take) for node, take in zip(nodes, takes, strict=True))


def place(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    """Mask of the best ``take`` CPUs of these cores of one NUMA node: most from the first L3, then core."""
    if take == sum(part.size for part in parts):
        return sum(part.allowed for part in parts)
    groups = by_l3(parts)
    takes = split([costs.l3(group) for group in groups], take)
    assert takes is not None
    return sum(_place_in_l3(costs, group, share) for group, share in zip(groups, takes, strict=True))


def place_block(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    """Mask of the best ``take`` CPUs of a block; of one of its L3s, where the request asks for one."""
    if not costs.demand.spans.one_l3:
        return place(costs, parts, take)
    best = min(by_l3(parts), key=lambda group: _cost(costs.l3(group), take))
    return place(costs, best, take)


def _cost(table: Table, take: int) -> int:
    return int(table[take]) if take < len(table) else never(table)


def _place_in_l3(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    """Most from the first core, then the next. Tables of the cores that follow hold for many L3s: those that
    have as many of each shape."""
    mask, after = 0, Counter(part.shape for part in parts)
    cost = int(costs.cores(after)[take])
    for part in parts:
        if take == 0:
            break
        after[part.shape] -= 1
        rest = costs.cores(+after)
        share = largest_first(costs.core(part), rest, take, cost)
        mask, take = mask | _lowest(part, share), take - share
        cost = int(rest[take])
    return mask


def _lowest(part: CorePart, take: int) -> int:
    """The lowest ``take`` CPUs of the core, near ones first."""
    near, far = _bits(part.near), _bits(part.allowed & ~part.near)
    return to_mask([*near, *far][:take])


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _grouped(parts: Iterable[CorePart], key: Callable[[CorePart], int]) -> list[list[CorePart]]:
    groups: dict[int, list[CorePart]] = {}
    for part in parts:
        groups.setdefault(key(part), []).append(part)
    return [groups[group] for group in sorted(groups)]
