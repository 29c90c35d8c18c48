"""The metrics of an allocation and their order: the one witness that all engines are judged by.

Computed from the topology document, the free CPUs, the allocation and the options alone. Sets of CPUs are bit
masks here. The definitions are those of docs/model.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from models import Metrics, Request, Topology, to_mask, union

REMOTE_DISTANCE = 20

TieKey = tuple[tuple[int, ...], ...]


def slots(request: Request) -> tuple[str | None, ...]:
    """Names of the request's metrics in the order in which they count; ``None`` where a slot does not count."""
    spans = ("sockets", "numa_nodes") if request.align_by_socket else ("numa_nodes", "sockets")
    cores = "doubled_threads" if request.threads == "spread" else "cores"
    tight = request.policy == "packed" and request.fit == "tight"
    return (
        "unevenness" if request.policy == "distributed" else None,
        "floor_shortfall" if request.numa_min is not None else None,
        "outside_near" if request.near is not None else None,
        *spans,
        "numa_distance",
        "core_types",
        *(("l3_caches", cores) if request.prefer_l3 else (cores, "l3_caches")),
        "numa_leftover" if tight else "numa_balance",
        "l3_leftover",
        "split_cores" if request.threads == "pack" else None,
    )


def joint_slots(requests: Sequence[Request]) -> tuple[tuple[int, str], ...]:
    """``(slot, name)`` of the metrics of several requests together, slots counted from 0.

    Where the requests name a slot differently its name joins theirs; slot 10, computed once for all, becomes
    ``numa_leftover`` and then ``numa_balance``.
    """
    found: list[tuple[int, str]] = []
    for slot, column in enumerate(zip(*map(slots, requests), strict=True)):
        names = dict.fromkeys(name for name in column if name is not None)
        if slot == 9:
            found += [(slot, name) for name in ("numa_leftover", "numa_balance") if name in names]
        elif names:
            found.append((slot, "+".join(names)))
    return tuple(found)


class Scorer:
    """Scores allocations on one machine. Domains are in the order of their lowest online CPU."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.allocatable = to_mask(topology.allocatable)
        self.numa_nodes = _masks((cpu.numa, cpu.cpu) for cpu in topology.cpus)
        self.distances = _distances(topology, self.numa_nodes)
        self.sockets = _masks((cpu.socket, cpu.cpu) for cpu in topology.cpus)
        self.cores = _masks((cpu.core, cpu.cpu) for cpu in topology.cpus)
        self.core_types = _masks((cpu.core_type, cpu.cpu) for cpu in topology.cpus)
        has_l3 = any(cpu.l3 is not None for cpu in topology.cpus)
        l3_of = ((("none", cpu.numa) if cpu.l3 is None else cpu.l3, cpu.cpu) for cpu in topology.cpus)
        self.l3s = _masks(l3_of) if has_l3 else ()
        self._l3s_nest = all(sum(bool(l3 & numa) for numa in self.numa_nodes) == 1 for l3 in self.l3s)

    def metrics(self, free: int, request: Request, taken: int) -> Metrics:
        """Metrics of one request's CPUs, in their order; ``free`` are all free CPUs before the allocation."""
        view = _View(self, request, free, taken)
        return {name: METRICS[name](view) for name in slots(request) if name is not None}

    def joint(self, free: int, requests: Sequence[Request], taken: Sequence[int]) -> Metrics:
        """Metrics of several requests together: slots 1 to 9 summed, slots 10 to 12 of the union."""
        each = [_View(self, request, free, mask) for request, mask in zip(requests, taken, strict=True)]
        whole = _View(self, requests[0], free, union(taken))
        packed = union(mask for request, mask in zip(requests, taken, strict=True) if request.threads == "pack")
        result: Metrics = {}
        for slot, name in joint_slots(requests):
            if slot < 9:
                own = [(view, slots(view.request)[slot]) for view in each]
                result[name] = sum(METRICS[metric](view) for view, metric in own if metric is not None)
            elif name == "split_cores":
                result[name] = _split_cores(whole, packed)
            else:
                result[name] = METRICS[name](whole)
        return result

    def tie_key(self, taken: int) -> TieKey:
        """What tells equally good allocations apart; the smallest wins.

        Lists of used NUMA nodes, of used sockets, of used L3s where those do not nest in NUMA nodes; then who
        takes more, in the first NUMA node, then by L3, then by core; then the lower CPU numbers.
        """
        spans = (self.numa_nodes, self.sockets, () if self._l3s_nest else self.l3s)
        used = tuple(tuple(i for i, mask in enumerate(level) if mask & taken) for level in spans)
        levels = (self.numa_nodes, self.l3s, self.cores)
        shares = tuple(tuple(-(mask & taken).bit_count() for mask in level) for level in levels)
        return (*used, *shares, tuple(i for i in range(taken.bit_length()) if taken >> i & 1))


@dataclass(frozen=True)
class _View:
    """One allocation, as the metrics look at it."""

    scorer: Scorer
    request: Request
    free: int
    taken: int

    def span(self, level: tuple[int, ...]) -> int:
        return sum(1 for mask in level if mask & self.taken)

    def shares(self, level: tuple[int, ...]) -> list[int]:
        return [(mask & self.taken).bit_count() for mask in level if mask & self.taken]

    def leftover(self, level: tuple[int, ...]) -> int:
        return sum((mask & (self.free & ~self.taken)).bit_count() for mask in level if mask & self.taken)


def _unevenness(view: _View) -> int:
    shares = view.shares(view.scorer.numa_nodes)
    return max(0, max(shares) - min(shares) - share_unit(view.scorer.cores, view.free, view.request))


def share_unit(cores: Iterable[int], free: int, request: Request) -> int:
    """By how many CPUs equal shares may differ: 1, or with whole cores the size of the largest one free."""
    if not request.full_cores:
        return 1
    return max((core.bit_count() for core in cores if core & ~free == 0), default=1)


def floor(allocatable: int, numa_nodes: Iterable[int], request: Request) -> int:
    """How many NUMA nodes ``numa_min`` asks for; ``all`` means those with allocatable CPUs."""
    if request.numa_min != "all":
        return request.numa_min or 0
    return sum(1 for mask in numa_nodes if mask & allocatable)


def _floor_shortfall(view: _View) -> int:
    nodes = view.scorer.numa_nodes
    return max(0, floor(view.scorer.allocatable, nodes, view.request) - view.span(nodes))


def _outside_near(view: _View) -> int:
    near = to_mask(view.scorer.topology.local_cpus(view.request.near or ""))
    return (view.taken & ~near).bit_count()


def _numa_distance(view: _View) -> int:
    used = [i for i, mask in enumerate(view.scorer.numa_nodes) if mask & view.taken]
    return sum(view.scorer.distances[a][b] for a in used for b in used)


def _doubled_threads(view: _View) -> int:
    return sum(share - 1 for share in view.shares(view.scorer.cores))


def _numa_balance(view: _View) -> int:
    left = view.free & ~view.taken
    return sum((mask & left).bit_count() ** 2 for mask in view.scorer.numa_nodes)


def _split_cores(view: _View, of: int) -> int:
    left = view.free & ~view.taken
    return sum(1 for core in view.scorer.cores if core & of and core & left)


METRICS: dict[str, Callable[[_View], int]] = {
    "unevenness": _unevenness,
    "floor_shortfall": _floor_shortfall,
    "outside_near": _outside_near,
    "numa_nodes": lambda view: view.span(view.scorer.numa_nodes),
    "sockets": lambda view: view.span(view.scorer.sockets),
    "numa_distance": _numa_distance,
    "core_types": lambda view: view.span(view.scorer.core_types),
    "cores": lambda view: view.span(view.scorer.cores),
    "doubled_threads": _doubled_threads,
    "l3_caches": lambda view: view.span(view.scorer.l3s),
    "numa_leftover": lambda view: view.leftover(view.scorer.numa_nodes),
    "numa_balance": _numa_balance,
    "l3_leftover": lambda view: view.leftover(view.scorer.l3s),
    "split_cores": lambda view: _split_cores(view, view.taken),
}


def _masks(members: Iterable[tuple[object, int]]) -> tuple[int, ...]:
    masks: dict[object, int] = {}
    for domain, cpu in members:
        masks[domain] = masks.get(domain, 0) | 1 << cpu
    return tuple(sorted(masks.values(), key=lambda mask: mask & -mask))


def _distances(topology: Topology, numa_nodes: Sequence[int]) -> list[list[int]]:
    """``[a][b]`` between NUMA nodes: 0 to itself, remote where the document does not say."""
    numa_of = {1 << cpu.cpu: cpu.numa for cpu in topology.cpus}
    ids = [numa_of[mask & -mask] for mask in numa_nodes]
    known = {(node.id, other): far for node in topology.numa_nodes for other, far in node.distances.items()}
    return [[0 if a == b else known.get((a, b), REMOTE_DISTANCE) for b in ids] for a in ids]  # type: ignore[arg-type]
