"""The part of the model that decides how many CPUs come from where: variables, rules and the metrics of spans."""

from collections.abc import Callable, Sequence
from math import gcd
from typing import get_args

from ortools.sat.python import cp_model

from models.request import CoreType
from solver.cpsat.search import Expr
from solver.problem import Demand, Problem
from solver.tables.blocks import Block
from solver.tables.twins import both_ways, interchangeable
from topologies.graph import Machine

Literals = dict[int, cp_model.IntVar]
"""A literal per domain, by its position in the machine's tuple."""

CORE_TYPES = get_args(CoreType)


class SpanModel:
    """Variables of one request: ``takes`` from each block, and a literal for each domain that is used."""

    def __init__(
        self,
        model: cp_model.CpModel,
        problem: Problem,
        demand: Demand,
        blocks: Sequence[Block],
        possible: Sequence[Sequence[int]],
    ) -> None:
        self.model, self.problem, self.demand, self.blocks = model, problem, demand, blocks
        # Where whole cores leave only multiples, counting in them lets parity show at once.
        self.step = gcd(*(size for sizes in possible for size in sizes)) or 1
        domains = [cp_model.Domain.from_values([size // self.step for size in sizes]) for sizes in possible]
        self.steps = [model.new_int_var_from_domain(domain, "steps") for domain in domains]
        self.takes = [self.step * steps for steps in self.steps]
        self.used_blocks = [self._is_used(take) for take in self.takes]
        self.numa_nodes = self._used_domains(lambda block: block.numa)
        self.sockets = self._used_domains(lambda block: block.socket)
        self.core_types = self._used_domains(lambda block: CORE_TYPES.index(block.core_type))
        self.l3s = self._used_domains(lambda block: -1 if block.l3 is None else block.l3)
        self.unevenness = self._unevenness()

    def add_constraints(self) -> None:
        """The size of the request and the rules about its spans."""
        spans, nodes = self.demand.spans, sum(self.numa_nodes.values())
        self.model.add(sum(self.takes) == self.demand.cpus)
        if spans.numa_least > 1:
            self.model.add(nodes >= spans.numa_least)
        if spans.numa_most < len(self.numa_nodes):
            self.model.add(nodes <= spans.numa_most)
        if spans.one_socket:
            self.model.add_at_most_one(self.sockets.values())
        if spans.even:
            self.model.add(self.unevenness == 0)

    def share(self, node: int) -> Expr:
        """How many CPUs come from the NUMA node at this position."""
        return sum(take for block, take in zip(self.blocks, self.takes, strict=True) if block.numa == node)

    def hint(self, mask: int) -> dict[cp_model.IntVar, int]:
        """Values of the takes' variables in an allocation."""
        shares = [(block.mask & mask).bit_count() // self.step for block in self.blocks]
        return dict(zip(self.steps, shares, strict=True))

    def metrics(self) -> dict[str, Expr]:
        """The metrics of spans, without ``outside_near``."""
        nodes = sum(self.numa_nodes.values())
        return {
            "unevenness": self.unevenness,
            "floor_shortfall": self._at_least(self.demand.floor - nodes, self.demand.floor),
            "numa_nodes": nodes,
            "sockets": sum(self.sockets.values()),
            "numa_distance": distance(self.model, self.problem.machine, self.numa_nodes),
            "core_types": sum(self.core_types.values()),
        }

    def _is_used(self, take: cp_model.LinearExpr) -> cp_model.IntVar:
        used = self.model.new_bool_var("used")
        self.model.add(take >= 1).only_enforce_if(used)
        self.model.add(take == 0).only_enforce_if(~used)
        return used

    def _used_domains(self, domain_of: Callable[[Block], int]) -> Literals:
        holders: dict[int, list[cp_model.IntVar]] = {}
        for block, used in zip(self.blocks, self.used_blocks, strict=True):
            holders.setdefault(domain_of(block), []).append(used)
        return {domain: any_of(self.model, literals) for domain, literals in holders.items()}

    def _unevenness(self) -> Expr:
        """max(0, largest share - smallest share - unit) over used NUMA nodes, from above."""
        if self.demand.request.policy == "packed":
            return 0
        cpus = self.demand.cpus
        highest, lowest = (self.model.new_int_var(0, cpus, name) for name in ("highest", "lowest"))
        for node, used in self.numa_nodes.items():
            self.model.add(self.share(node) <= highest)
            self.model.add(self.share(node) >= lowest).only_enforce_if(used)
        return self._at_least(highest - lowest - self.demand.unit, cpus)

    def _at_least(self, expr: Expr, most: int) -> Expr:
        if most == 0:
            return 0
        excess = self.model.new_int_var(0, most, "excess")
        self.model.add(excess >= expr)
        return excess


def any_of(model: cp_model.CpModel, literals: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    """A literal that is true exactly when one of these is."""
    if len(literals) == 1:
        return literals[0]
    result = model.new_bool_var("any")
    model.add_max_equality(result, literals)
    return result


def distance(model: cp_model.CpModel, machine: Machine, used: Literals) -> Expr:
    """Sum of distances over ordered pairs of used NUMA nodes.

    Nodes that have the same distances to all others are interchangeable: only how many of them are used counts.
    """
    groups = interchangeable(machine, tuple(used))
    counts = [_count(model, [used[node] for node in group]) for group in groups]
    total: Expr = 0
    for i, group in enumerate(groups):
        if len(group) > 1:
            total += both_ways(machine, group[0], group[1]) * _pairs(model, counts[i], len(group))
        for j in range(i):
            apart = both_ways(machine, group[0], groups[j][0])
            total += apart * _product(model, counts[i], len(group), counts[j], len(groups[j]))
    return total


def _count(model: cp_model.CpModel, literals: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    if len(literals) == 1:
        return literals[0]
    count = model.new_int_var(0, len(literals), "count")
    model.add(count == sum(literals))
    return count


def _pairs(model: cp_model.CpModel, count: cp_model.IntVar, most: int) -> cp_model.IntVar:
    table = [n * (n - 1) // 2 for n in range(most + 1)]
    pairs = model.new_int_var(0, table[-1], "pairs")
    model.add_element(count, table, pairs)
    return pairs


def _product(
    model: cp_model.CpModel, a: cp_model.IntVar, most_a: int, b: cp_model.IntVar, most_b: int
) -> cp_model.IntVar:
    product = model.new_int_var(0, most_a * most_b, "product")
    if most_a == most_b == 1:
        model.add(product >= a + b - 1)
    else:
        model.add_multiplication_equality(product, [a, b])
    return product
