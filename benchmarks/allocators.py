"""Allocators that live through the same trace: what people run today, two simple ones, and ours.

An allocator is a function of (machine, free CPUs, ask, random numbers) that returns the mask it takes, or
``None`` when it refuses. ``one_node`` in an ask is a rule, like the topology manager's ``single-numa-node``: each
allocator keeps it in its own way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from random import Random

from models import Request, from_mask, to_mask
from solver.engine import solve
from solver.greedy import take_packed
from solver.greedy.packed import lowest
from solver.problem import Prepared
from topologies.graph import Domain, Machine

TIME_LIMIT = 60.0
"""Seconds; so long that traces do not depend on how busy this machine is."""

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Claims that ``look-ahead`` wants to leave room for; it does not know the mix that is to come."""


@dataclass(frozen=True)
class Ask:
    """How many CPUs a claim wants, and whether they must lie on one NUMA node."""

    cpus: int
    one_node: bool = False


Allocator = Callable[[Prepared, int, Ask, Random], int | None]


def _kubelet(prepared: Prepared, free: int, ask: Ask, rng: Random, *, prefer_l3: bool = False) -> int | None:
    """The static policy alone; with the rule, in the NUMA node that the topology manager names."""
    pool = _affinity(prepared.machine, free, ask.cpus, most=1) if ask.one_node else free
    return None if pool is None else take_packed(prepared.machine, pool, ask.cpus, prefer_l3=prefer_l3)


def _kubelet_with_hints(prepared: Prepared, free: int, ask: Ask, rng: Random) -> int | None:
    """The static policy in the NUMA nodes that the topology manager's ``best-effort`` names."""
    machine = prepared.machine
    pool = _affinity(machine, free, ask.cpus, most=1 if ask.one_node else len(machine.numa_nodes))
    return None if pool is None else take_packed(machine, pool, ask.cpus)


def _affinity(machine: Machine, free: int, cpus: int, most: int) -> int | None:
    """Free CPUs of the fewest NUMA nodes that hold so many; among equally few those with the lowest ids.

    As the topology manager chooses among hints: the narrowest mask, then the lowest as a number.
    """
    nodes = sorted(machine.numa_nodes, key=_id)
    for count in range(1, most + 1):
        fitting = [chosen for chosen in combinations(nodes, count) if _free_in(chosen, free) >= cpus]
        if fitting:
            return free & sum(node.mask for node in min(fitting, key=lambda chosen: [*map(_id, reversed(chosen))]))
    return None


def _id(node: Domain) -> int:
    return node.id if isinstance(node.id, int) else -1


def _free_in(nodes: tuple[Domain, ...], free: int) -> int:
    return sum((node.mask & free).bit_count() for node in nodes)


def _first_fit(prepared: Prepared, free: int, ask: Ask, rng: Random) -> int | None:
    """The lowest CPU numbers; with the rule, of the first NUMA node that holds the claim."""
    pool = next(_rooms(prepared.machine, free, ask), 0)
    return lowest(pool, ask.cpus) if pool else None


def _random(prepared: Prepared, free: int, ask: Ask, rng: Random) -> int | None:
    """Any CPUs; with the rule, of any NUMA node that holds the claim."""
    pools = list(_rooms(prepared.machine, free, ask))
    return to_mask(rng.sample(sorted(from_mask(rng.choice(pools))), ask.cpus)) if pools else None


def _rooms(machine: Machine, free: int, ask: Ask) -> Iterator[int]:
    """Free CPUs that the claim may come from as a whole: of each NUMA node under the rule, else all of them."""
    pools = [node.mask & free for node in machine.numa_nodes] if ask.one_node else [free]
    return (pool for pool in pools if pool.bit_count() >= ask.cpus)


def _optimal(prepared: Prepared, free: int, ask: Ask, rng: Random, **options: object) -> int | None:
    """Our optimum, step by step."""
    request = Request(cpus=ask.cpus, numa_max=1 if ask.one_node else None, **options)  # type: ignore[arg-type]
    result = solve(prepared, request, free=from_mask(free), time_limit=TIME_LIMIT)
    return to_mask(result.allocations[0].cpuset) if result.allocations else None


def _node_first(
    prepared: Prepared, free: int, ask: Ask, rng: Random, *, cost: Callable[[int, int], int]
) -> int | None:
    """The NUMA node of least cost (free CPUs, CPUs wanted) that holds the claim, then our optimum in it.

    Another order of objectives: what is left for others comes before cores and L3s. Claims that no NUMA node holds
    get our optimum.
    """
    left = {node.id: (node.mask & free).bit_count() for node in prepared.machine.numa_nodes}
    rooms = [node for node, count in left.items() if isinstance(node, int) and count >= ask.cpus]
    if not rooms:
        return _optimal(prepared, free, ask, rng)
    least = min(cost(left[node], ask.cpus) for node in rooms)
    ids = frozenset(node for node in rooms if cost(left[node], ask.cpus) == least)
    return _optimal(prepared, free, Ask(ask.cpus, one_node=True), rng, numa_ids=ids)


def _leftover(free: int, cpus: int) -> int:
    """CPUs left in the NUMA node: the fullest one is the cheapest."""
    return free - cpus


def _claims_lost(free: int, cpus: int) -> int:
    """How many claims of ``SIZES`` less the NUMA node could take afterwards, weighted by their CPUs."""
    return sum((free // size - (free - cpus) // size) * size for size in SIZES)


ALLOCATORS: dict[str, Allocator] = {
    "kubelet": _kubelet,
    "kubelet, L3": partial(_kubelet, prefer_l3=True),
    "kubelet, hints": _kubelet_with_hints,
    "first fit": _first_fit,
    "random": _random,
    "optimal": _optimal,
    "optimal, L3": partial(_optimal, prefer_l3=True),
    "optimal, loose": partial(_optimal, fit="loose"),
    "fullest node": partial(_node_first, cost=_leftover),
    "look-ahead": partial(_node_first, cost=_claims_lost),
}
"""By name: the kubelet's static policy, alone, with L3 preference, with hints; two simple ones; ours."""
