"""The model that one would write first: a Boolean per CPU, a Boolean per domain, one weighted sum.

The metrics are those of docs/model.md, without any of the thought that makes them fast: no counts of
interchangeable CPUs, no tables, no stages. Only what a request with nothing but a policy needs is modelled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model

from models import Metrics, Request, from_mask
from solver.cpsat.search import Expr
from solver.problem import Prepared
from solver.score import names

LARGEST_WEIGHT = 1 << 60
"""Weighted sums are 64-bit numbers to CP-SAT; metrics that do not fit into one get another solve."""


@dataclass(frozen=True)
class PlainAnswer:
    """``metrics`` of the best answer, by the shared scorer; none without one. ``sums``: solves it took."""

    metrics: Metrics
    proven: bool
    sums: int


@dataclass(frozen=True)
class _Metric:
    """A metric as an expression, and the most that it can be."""

    expr: Expr
    most: int


def solve_plain(prepared: Prepared, request: Request, free: int, time_limit: float = 10.0) -> PlainAnswer:
    """The request on the free CPUs (a mask) with one worker; ``time_limit`` in seconds, building included."""
    deadline = time.perf_counter() + time_limit
    plain = PlainModel(prepared, request, free)
    sums = weighted_sums([plain.metric(name) for name in names(request)])
    proven, taken = True, 0
    for objective in sums:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = max(0.0, deadline - time.perf_counter())
        plain.model.minimize(objective)
        status = solver.solve(plain.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            taken = sum(1 << cpu for cpu, chosen in plain.cpus.items() if solver.value(chosen))
        proven = status == cp_model.OPTIMAL
        if not proven:
            break
        plain.model.add(objective <= solver.value(objective))
    metrics = prepared.scorer.joint(free, [request], [taken]) if taken else {}
    return PlainAnswer(metrics, proven, len(sums))


def weighted_sums(metrics: Sequence[_Metric]) -> list[Expr]:
    """The metrics in as few sums as 64 bits hold, each metric outweighing all that come after it in its sum."""
    groups: list[list[_Metric]] = [[]]
    size = 1
    for metric in metrics:
        if size * (metric.most + 1) > LARGEST_WEIGHT:
            groups.append([])
            size = 1
        size *= metric.most + 1
        groups[-1].append(metric)
    return [_weighted(group) for group in groups]


def _weighted(metrics: Sequence[_Metric]) -> Expr:
    terms, weight = [], 1
    for metric in reversed(metrics):
        terms.append(weight * metric.expr)
        weight *= metric.most + 1
    return sum(terms)


class PlainModel:
    """One Boolean per free CPU; for each level a count and a Boolean per domain with free CPUs."""

    def __init__(self, prepared: Prepared, request: Request, free: int) -> None:
        self.model = cp_model.CpModel()
        self.request, self.machine = request, prepared.machine
        self.cpus = {cpu: self.model.new_bool_var(f"cpu{cpu}") for cpu in from_mask(free)}
        self.model.add(sum(self.cpus.values()) == request.cpus)
        self.nodes, self.sockets, self.l3s, self.cores = (
            [self._domain(mask & free) for mask in level if mask & free]
            for level in (
                prepared.scorer.numa_nodes,
                prepared.scorer.sockets,
                prepared.scorer.l3s,
                prepared.scorer.cores,
            )
        )
        self.types = [self._domain(mask & free) for mask in prepared.scorer.core_types if mask & free]
        self.positions = [i for i, mask in enumerate(prepared.scorer.numa_nodes) if mask & free]

    def _domain(self, mask: int) -> "_Domain":
        mine = [self.cpus[cpu] for cpu in from_mask(mask)]
        used = self.model.new_bool_var("used")
        self.model.add_max_equality(used, mine)
        return _Domain(used, sum(mine), len(mine))

    def metric(self, name: str) -> _Metric:
        """The metric of that name, its variables and constraints added to the model."""
        return _METRICS[name](self)

    def distance(self) -> _Metric:
        """Sum of distances over ordered pairs of used NUMA nodes."""
        matrix, terms, most = self.machine.distances, [], 0
        for (a, one), (b, other) in combinations(zip(self.positions, self.nodes, strict=True), 2):
            both = self.model.new_bool_var("both")
            self.model.add(both >= one.used + other.used - 1)
            terms.append((matrix[a][b] + matrix[b][a]) * both)
            most += matrix[a][b] + matrix[b][a]
        return _Metric(sum(terms), most)

    def unevenness(self) -> _Metric:
        """Largest less smallest share of a used NUMA node, less one CPU, and never below 0."""
        size = self.request.cpus
        largest, least, above = (self.model.new_int_var(0, size, name) for name in ("largest", "least", "above"))
        for node in self.nodes:
            self.model.add(largest >= node.take)
            self.model.add(least <= node.take).only_enforce_if(node.used)
        self.model.add(above >= largest - least - 1)
        return _Metric(above, size)

    def balance(self) -> _Metric:
        """Sum of the squares of what each NUMA node has left."""
        squares = []
        for node in self.nodes:
            square = self.model.new_int_var(0, node.free**2, "square")
            self.model.add_multiplication_equality(square, [node.free - node.take, node.free - node.take])
            squares.append(square)
        return _Metric(sum(squares), sum(node.free**2 for node in self.nodes))

    def split_cores(self) -> _Metric:
        """Used cores that keep a free CPU."""
        splits = []
        for core in self.cores:
            split = self.model.new_bool_var("split")
            self.model.add(core.take >= core.free * core.used - core.free * split)
            splits.append(split)
        return _Metric(sum(splits), len(splits))


@dataclass(frozen=True)
class _Domain:
    """Whether it is used, how many CPUs are taken from it, and how many were free."""

    used: cp_model.IntVar
    take: Expr
    free: int


def _span(domains: Sequence[_Domain]) -> _Metric:
    return _Metric(sum(domain.used for domain in domains), len(domains))


def _leftover(plain: PlainModel, domains: Sequence[_Domain]) -> _Metric:
    left = sum(domain.free * domain.used - domain.take for domain in domains)
    return _Metric(left, sum(domain.free for domain in domains))


_METRICS: dict[str, Callable[[PlainModel], _Metric]] = {
    "unevenness": PlainModel.unevenness,
    "numa_nodes": lambda plain: _span(plain.nodes),
    "sockets": lambda plain: _span(plain.sockets),
    "numa_distance": PlainModel.distance,
    "core_types": lambda plain: _span(plain.types),
    "cores": lambda plain: _span(plain.cores),
    "l3_caches": lambda plain: _span(plain.l3s),
    "numa_leftover": lambda plain: _leftover(plain, plain.nodes),
    "numa_balance": PlainModel.balance,
    "l3_leftover": lambda plain: _leftover(plain, plain.l3s),
    "split_cores": PlainModel.split_cores,
}
