"""Options that the kubelet does not have, as filters on the CPUs it sees and as floors on the shares it gives."""

from collections.abc import Iterable, Iterator

from models import union
from solver.greedy.distributed import take_distributed
from solver.greedy.packed import lowest, take_packed
from solver.problem import Demand
from topologies.graph import Domain, Machine


def narrower_pools(machine: Machine, demand: Demand, pool: int) -> Iterator[int]:
    """The pool, and the parts of it that the request's options would rather be served from."""
    pools = [pool]
    if demand.request.near is not None:
        pools = [pool & demand.near, pool]
    if demand.request.align_by_socket or demand.rules.one_socket:
        pools = [part & socket.mask for part in pools for socket in machine.sockets] + pools
    if demand.rules.one_l3 and machine.l3s:
        pools = [part & l3.mask for part in pools for l3 in machine.l3s]
    if demand.rules.numa_most < len(machine.numa_nodes):
        pools = [some for part in pools for some in _few_nodes(machine, part, demand.rules.numa_most)]
    if demand.rules.one_thread:
        pools = [union(lowest(core.mask & part, 1) for core in machine.cores) for part in pools]
    yield from (part for part in dict.fromkeys(pools) if part.bit_count() >= demand.cpus)


def _few_nodes(machine: Machine, pool: int, most: int) -> Iterator[int]:
    """The emptiest ``most`` NUMA nodes of the machine, and of each socket."""
    for within in [machine.online, *(socket.mask for socket in machine.sockets)]:
        nodes = _emptiest(machine.numa_nodes, pool & within)
        yield pool & within & union(node.mask for node in nodes[:most])


def _emptiest(nodes: Iterable[Domain], pool: int) -> list[Domain]:
    return sorted(nodes, key=lambda node: -(node.mask & pool).bit_count())


def answers_from(machine: Machine, demand: Demand, pool: int) -> Iterator[int]:
    """What the kubelet's algorithm gives out of the pool, then with shares of a floor of NUMA nodes."""
    plain = _kubelet(machine, demand, pool)
    if plain is not None:
        yield plain
    if demand.request.full_cores:
        yield from _largest_cores_first(machine, demand, pool)
    floors = {demand.floor} if demand.floor > 1 else set()
    if demand.rules.even:
        floors |= set(range(1, min(demand.rules.numa_most, len(machine.numa_nodes)) + 1))
    for floor in sorted(floors):
        yield from _shares(machine, demand, pool, floor)


def _kubelet(machine: Machine, demand: Demand, pool: int) -> int | None:
    request, spread = demand.request, demand.request.threads == "spread"
    if request.policy == "packed":
        return take_packed(machine, pool, demand.cpus, spread=spread, prefer_l3=request.prefer_l3)
    group = demand.unit if request.full_cores else 1
    return take_distributed(machine, pool, demand.cpus, group=group, spread=spread)


def _largest_cores_first(machine: Machine, demand: Demand, pool: int) -> Iterator[int]:
    """Whole cores of unequal size, the largest first, as long as they do not exceed the size."""
    taken = 0
    for core in sorted(machine.cores, key=lambda core: -core.mask.bit_count()):
        if core.mask & ~pool == 0 and (taken | core.mask).bit_count() <= demand.cpus:
            taken |= core.mask
    yield taken


def _shares(machine: Machine, demand: Demand, pool: int, floor: int) -> Iterator[int]:
    """Equal shares of the emptiest ``floor`` NUMA nodes, of the machine and of each socket."""
    for within in [machine.online, *(socket.mask for socket in machine.sockets)]:
        nodes = _emptiest(machine.numa_nodes, pool & within)[:floor]
        taken = _fill(machine, demand, [node.mask & pool & within for node in nodes])
        if taken.bit_count() == demand.cpus:
            yield taken


def _fill(machine: Machine, demand: Demand, pools: list[int]) -> int:
    """Shares as equal as the pools' sizes allow, the smallest pool first, each packed."""
    unit = demand.unit if demand.request.full_cores else 1
    taken, need = 0, demand.cpus
    for left, pool in zip(range(len(pools), 0, -1), sorted(pools, key=int.bit_count), strict=True):
        share = min(pool.bit_count(), need // left // unit * unit if left > 1 else need)
        taken |= take_packed(machine, pool, share, spread=demand.request.threads == "spread") or 0
        need -= share
    return taken
