"""The tie rule on fixed sets of domains: from counts to CPU numbers, by exact tables.

Which NUMA nodes, sockets and (where they do not nest) L3s are used is given; what remains is a sum over cores,
so the cheapest way that takes most from the first NUMA node, then the next, then so by L3, by core and by CPU
number is found level by level.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from models import Metrics, to_mask
from solver.problem import CorePart, Demand
from solver.reduction.costs import Costs, by_l3
from solver.reduction.minplus import Table, inside, never
from solver.reduction.shares import Window
from solver.reduction.splits import Sums, split


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
    windows = _windows(demand, used, metrics)
    found = [_pin(costs, parts, windows) for parts in _choices(demand, used, metrics)]
    good = [mask for mask in found if mask and scorer.metrics(free, demand.request, mask) == metrics]
    return min(good, key=scorer.tie_key) if good[1:] else next(iter(good), None)


def _choices(demand: Demand, used: UsedDomains, metrics: Metrics) -> Iterator[list[CorePart]]:
    """The cores on the used domains, for each choice of as many core types as the metrics say, and one L3."""
    inside = [part for part in demand.parts if used.hold(part)]
    types = sorted({part.core_type for part in inside})
    for chosen in combinations(types, metrics["core_types"]):
        parts = [part for part in inside if part.core_type in chosen]
        if {part.numa for part in parts} == set(used.numa_nodes):
            yield from by_l3(parts) if demand.rules.one_l3 else [parts]


def _windows(demand: Demand, used: UsedDomains, metrics: Metrics) -> list[Window]:
    """Windows that hold the shares of all used NUMA nodes, as uneven as the metrics say."""
    if demand.request.policy == "packed":
        return [Window(1, demand.cpus - 1)]
    width, mean = metrics["unevenness"] + demand.unit, demand.cpus // len(used.numa_nodes)
    # Below these all shares would have to reach the upper end, and the next window holds them too.
    return [Window(least, width) for least in range(max(1, mean - width + 1), mean + 1)]


def _pin(costs: Costs, parts: Sequence[CorePart], windows: Iterable[Window]) -> int | None:
    """The best mask of these cores with shares in one of the windows: it costs least, then it is the first."""
    nodes = _grouped(parts, lambda part: part.numa)
    tables = [costs.numa_node(node) for node in nodes]
    found = [shares for window in windows if (shares := _shares(tables, costs.demand.cpus, window))]
    if not found:
        return None
    best = max(found, key=lambda shares: (-sum(map(_cost, tables, shares)), shares))
    return sum(map(partial(place, costs), nodes, best))


def _shares(tables: Sequence[Table], cpus: int, window: Window) -> list[int] | None:
    """What each NUMA node gives, all within the window; ``None`` if that does not add up."""
    least, most = window.least, window.least + window.width
    sizes = [len(table) - 1 for table in tables]
    if min(sizes) < least or sum(min(size, most) for size in sizes) < cpus:
        return None
    some = {i: inside(table, least, window.width) for i, table in enumerate(tables)}
    more = split(Sums(some.__getitem__, tables[0].dtype), range(len(tables)), cpus - least * len(tables))
    return None if more is None else [least + take for take in more]


def place(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    """Mask of the best ``take`` CPUs of these cores of one NUMA node: most from the first L3, then core."""
    if take == sum(part.size for part in parts):
        return sum(part.allowed for part in parts)
    groups = by_l3(parts)
    takes = split(costs.l3s, list(map(costs.l3_kind, groups)), take)
    assert takes is not None
    return sum(_place_in_l3(costs, group, share) for group, share in zip(groups, takes, strict=True))


def place_block(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    """Mask of the best ``take`` CPUs of a block; of one of its L3s, where the request asks for one."""
    if not costs.demand.rules.one_l3:
        return place(costs, parts, take)
    best = min(by_l3(parts), key=lambda group: _cost(costs.l3s.alike(costs.l3_kind(group)), take))
    return place(costs, best, take)


def _cost(table: Table, take: int) -> int:
    return int(table[take]) if take < len(table) else never(table)


def _place_in_l3(costs: Costs, parts: Sequence[CorePart], take: int) -> int:
    if take == sum(part.size for part in parts):
        return sum(part.allowed for part in parts)
    takes = split(costs.cores, [part.shape for part in parts], take)
    assert takes is not None
    return sum(_lowest(part, share) for part, share in zip(parts, takes, strict=True))


def _lowest(part: CorePart, take: int) -> int:
    """The lowest ``take`` CPUs of the core, near ones first."""
    if take == part.size:
        return part.allowed
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
