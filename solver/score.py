"""The metrics of an allocation and their order: the one witness that all engines are judged by.

Computed from the machine, the free CPUs, the allocation and the options alone. Sets of CPUs are bit masks here.
The definitions are those of docs/model.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from models import Metrics, Request, to_mask, union
from topologies.graph import Domain, Machine

Scope = Literal["span", "core", "union"]
"""What decides a metric: takes from NUMA nodes, cores and L3s used, or what all requests together leave free."""

TieKey = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Slot:
    """A place in the order of metrics. ``metric``: what a request has there, ``None`` if nothing."""

    scope: Scope
    metric: Callable[[Request], str | None]


def _per_core(request: Request) -> str:
    return "doubled_threads" if request.threads == "spread" else "cores"


def _numa_left(request: Request) -> str:
    return "numa_leftover" if request.policy == "packed" and request.fit == "tight" else "numa_balance"


ORDER = (
    Slot("span", lambda request: "unevenness" if request.policy == "distributed" else None),
    Slot("span", lambda request: "floor_shortfall" if request.numa_min is not None else None),
    Slot("span", lambda request: "outside_near" if request.near is not None else None),
    Slot("span", lambda request: "sockets" if request.align_by_socket else "numa_nodes"),
    Slot("span", lambda request: "numa_nodes" if request.align_by_socket else "sockets"),
    Slot("span", lambda _: "numa_distance"),
    Slot("span", lambda _: "core_types"),
    Slot("core", lambda request: "l3_caches" if request.prefer_l3 else _per_core(request)),
    Slot("core", lambda request: _per_core(request) if request.prefer_l3 else "l3_caches"),
    Slot("union", _numa_left),
    Slot("union", lambda _: "l3_leftover"),
    Slot("union", lambda request: "split_cores" if request.threads == "pack" else None),
)
"""All metrics, those that matter most first."""


def slots(request: Request) -> tuple[str | None, ...]:
    """The request's metric in each slot of the order; ``None`` where it has none."""
    return tuple(slot.metric(request) for slot in ORDER)


def names(request: Request, *scopes: Scope) -> tuple[str, ...]:
    """The request's metrics in their order; of these scopes only, if any are given."""
    found = ((slot.scope, slot.metric(request)) for slot in ORDER)
    return tuple(name for scope, name in found if name is not None and (not scopes or scope in scopes))


@dataclass(frozen=True)
class JointMetric:
    """A metric of several requests together. ``own``: what each request has in its slot, ``None`` for nothing."""

    scope: Scope
    name: str
    own: tuple[str | None, ...]


def joint_order(requests: Sequence[Request], *scopes: Scope) -> tuple[JointMetric, ...]:
    """The metrics of several requests together, in their order; of these scopes only, if any are given.

    Where the requests have different metrics in a slot that is summed, its name joins theirs. In a slot of the
    union each is a metric of its own.
    """
    found: list[JointMetric] = []
    for slot, own in zip(ORDER, zip(*map(slots, requests), strict=True), strict=True):
        different = sorted({name for name in own if name is not None}, key=list(METRICS).index)
        if scopes and slot.scope not in scopes:
            continue
        if slot.scope == "union":
            found += [JointMetric(slot.scope, name, own) for name in different]
        elif different:
            found.append(JointMetric(slot.scope, "+".join(dict.fromkeys(filter(None, own))), own))
    return tuple(found)


class Scorer:
    """Scores allocations on one machine. Domains are masks, in the order of their lowest online CPU."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.allocatable = to_mask(machine.topology.allocatable)
        self.numa_nodes, self.sockets = _masks(machine.numa_nodes), _masks(machine.sockets)
        self.l3s, self.cores = _masks(machine.l3s), _masks(machine.cores)
        self.core_types = machine.core_types

    def metrics(self, free: int, request: Request, taken: int) -> Metrics:
        """Metrics of one request's CPUs, in their order; ``free`` are all free CPUs before the allocation."""
        view = _View(self, request, free, taken, taken)
        return {name: METRICS[name](view) for name in names(request)}

    def joint(self, free: int, requests: Sequence[Request], taken: Sequence[int]) -> Metrics:
        """Metrics of several requests together, by name: sums over requests, or of the union of their CPUs."""
        if len(requests) == 1:
            return self.metrics(free, requests[0], taken[0])
        each = [_View(self, request, free, mask, mask) for request, mask in zip(requests, taken, strict=True)]
        whole = union(taken)
        result: Metrics = {}
        for metric in joint_order(requests):
            pairs = [(view, name) for view, name in zip(each, metric.own, strict=True) if name is not None]
            if metric.scope == "union":
                counted = union(view.taken for view, _ in pairs)
                result[metric.name] = METRICS[metric.name](_View(self, requests[0], free, whole, counted))
            else:
                result[metric.name] = sum(METRICS[name](view) for view, name in pairs)
        return result

    def tie_key(self, taken: int) -> TieKey:
        """What tells equally good allocations apart; the smallest wins.

        Lists of used NUMA nodes, of used sockets, of used L3s where those do not nest in NUMA nodes; then who
        takes more, in the first NUMA node, then by L3, then by core; then the lower CPU numbers.
        """
        spans = (self.numa_nodes, self.sockets, () if self.machine.nests("l3", "numa") else self.l3s)
        used = tuple(tuple(i for i, mask in enumerate(level) if mask & taken) for level in spans)
        levels = (self.numa_nodes, self.l3s, self.cores)
        shares = tuple(tuple(-(mask & taken).bit_count() for mask in level) for level in levels)
        return (*used, *shares, tuple(i for i in range(taken.bit_length()) if taken >> i & 1))


@dataclass(frozen=True)
class _View:
    """One allocation, as metrics see it. ``counted``: the CPUs of the requests that have the metric."""

    scorer: Scorer
    request: Request
    free: int
    taken: int
    counted: int

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
    near = view.scorer.machine.near(view.request.near or "")
    return (view.taken & ~near).bit_count()


def _numa_distance(view: _View) -> int:
    used = [i for i, mask in enumerate(view.scorer.numa_nodes) if mask & view.taken]
    distances = view.scorer.machine.distances
    return sum(distances[a][b] for a in used for b in used if a != b)


def _doubled_threads(view: _View) -> int:
    return sum(share - 1 for share in view.shares(view.scorer.cores))


def _numa_balance(view: _View) -> int:
    left = view.free & ~view.taken
    return sum((mask & left).bit_count() ** 2 for mask in view.scorer.numa_nodes)


def _split_cores(view: _View) -> int:
    left = view.free & ~view.taken
    return sum(1 for core in view.scorer.cores if core & view.counted and core & left)


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
    "split_cores": _split_cores,
}


def _masks(domains: Iterable[Domain]) -> tuple[int, ...]:
    return tuple(domain.mask for domain in domains)
