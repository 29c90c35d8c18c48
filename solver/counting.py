"""Which sizes of a request can be placed at all: exact, by counting, without any solver.

Numbers of CPUs are bits of an integer: bit n of a set says that n CPUs can be taken. The greedy engine calls
nothing infeasible without this proof, and CP-SAT's word is checked against it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from models import union
from solver.problem import AllocationRules, CorePart, Demand


def placeable(demand: Demand) -> int:
    """Bit n is set when n CPUs could be placed by the request's rules, were it alone on the machine."""
    sizes = 0
    for parts in _universes(demand):
        nodes = [takes_of(demand, node) for node in _by(parts, "numa")]
        sizes |= _even_totals(nodes, demand) if demand.rules.even else _totals(nodes, demand.rules)
    return sizes & ~1


def can_be_placed(demand: Demand) -> bool:
    """Whether the request could be placed, were it alone on the machine."""
    return bool(placeable(demand) >> demand.cpus & 1)


def counted_out(demands: Sequence[Demand]) -> bool:
    """Proof by counting that the requests cannot all be placed: one of them, or their sum, is too large."""
    pool = union(demand.allowed for demand in demands)
    too_many = sum(demand.cpus for demand in demands) > pool.bit_count()
    return too_many or not all(map(can_be_placed, demands))


def _universes(demand: Demand) -> Iterator[Sequence[CorePart]]:
    """The cores, once for each socket or L3 that the whole request would have to come from."""
    sockets = _by(demand.parts, "socket") if demand.rules.one_socket else [list(demand.parts)]
    for socket in sockets:
        yield from _by(socket, "l3") if demand.rules.one_l3 else [socket]


def _by(parts: Iterable[CorePart], level: str) -> list[list[CorePart]]:
    groups: dict[int, list[CorePart]] = {}
    for part in parts:
        groups.setdefault(getattr(part, level), []).append(part)
    return list(groups.values())


def takes_of(demand: Demand, parts: Iterable[CorePart]) -> int:
    """What can be taken from these cores, at least one CPU."""
    takes = 1
    for part in parts:
        if demand.request.full_cores:
            takes |= takes << part.size
        else:
            most = 1 if demand.rules.one_thread else part.size
            takes = union(takes << take for take in range(most + 1))
    return takes & ~1


def _even_totals(nodes: Sequence[int], demand: Demand) -> int:
    """Totals of shares that all lie between some least share and that plus the unit."""
    window = (1 << demand.unit + 1) - 1
    largest = max((node.bit_length() for node in nodes), default=0)
    windows = ([node & window << least for node in nodes] for least in range(1, largest))
    totals = 0
    for shares in windows:
        totals |= _totals(shares, demand.rules)
    return totals


def _totals(nodes: Sequence[int], rules: AllocationRules) -> int:
    """Totals over as many NUMA nodes as the rules allow, each giving one of its takes."""
    if rules.numa_least <= 1 and rules.numa_most >= len(nodes):
        return _sum([node | 1 for node in nodes])
    by_count = [1] + [0] * min(rules.numa_most, len(nodes))
    for node in nodes:
        for count in range(len(by_count) - 1, 0, -1):
            by_count[count] |= _plus(by_count[count - 1], node)
    return union(by_count[rules.numa_least :])


def _sum(sets: Sequence[int]) -> int:
    """All sums of one element of each set."""
    return reduce(_plus, sets, 1)


def _plus(sums: int, node: int) -> int:
    """All sums with one element more: one shift for each element of the smaller set."""
    return union(sums << shift for shift in elements(node))


def elements(bits: int) -> Iterator[int]:
    """The numbers in a set, in order."""
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1
