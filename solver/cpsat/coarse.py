"""Several requests, coarsely: how many CPUs each takes from each NUMA node, blind to cores and L3s.

Whatever can really be placed satisfies this model, so its optima bound the real ones; and its shares, packed
request by request, usually are an allocation with just these values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from models import union
from solver.counting import elements, takes_of
from solver.cpsat.expressions import dot, summed
from solver.cpsat.rules import add_rules_between
from solver.cpsat.search import Expr, Search
from solver.cpsat.spans import SpanModel
from solver.cpsat.unions import UNION_METRICS
from solver.problem import Problem, pose
from solver.score import joint_slots
from solver.tables.blocks import Block, blocks_of
from solver.tables.costs import Costs
from solver.tables.minplus import possible
from solver.tables.pin import place_block
from solver.tables.twins import interchangeable

COARSE_SLOTS = 7
"""First slots, decided by how many CPUs come from which NUMA node."""


@dataclass(frozen=True)
class Offer:
    """What one block offers one request: ``sizes`` that it may take, and the variable for what it takes."""

    request: int
    block: Block
    sizes: tuple[int, ...]
    take: cp_model.LinearExpr
    whole_cores: bool

    @property
    def near(self) -> int:
        """How many of the CPUs are near."""
        return sum(part.near.bit_count() for part in self.block.parts)

    @property
    def look(self) -> tuple[object, ...]:
        """All that tells it from an offer of another NUMA node."""
        return (self.request, self.block.place[1:], self.block.mask.bit_count(), self.near, self.sizes)


class CoarseModel:
    """The model of several requests on blocks of NUMA nodes; ``metrics`` has those that NUMA nodes decide."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.offers: list[Offer] = []
        self.requests = [self._spans(i) for i in range(len(problem.demands))]
        self.add_constraints()
        own = [self._metrics(i) for i in range(len(problem.demands))]
        self.metrics = summed(problem.requests, own, COARSE_SLOTS)
        # Not knowing cores and L3s, which come before, it still bounds what is left of NUMA nodes.
        for _, name in joint_slots(problem.requests):
            if name in ("numa_leftover", "numa_balance"):
                self.metrics[name] = UNION_METRICS[name](self.model, problem, self.requests)

    def _spans(self, position: int) -> SpanModel:
        demand = self.problem.demands[position]
        blocks = blocks_of(demand, by_l3=False)
        sizes = [(0, *elements(takes_of(demand, block.parts))) for block in blocks]
        spans = SpanModel(self.model, self.problem, demand, blocks, sizes)
        self.offers += [
            Offer(position, *each, demand.request.full_cores)
            for each in zip(blocks, sizes, spans.takes, strict=True)
        ]
        return spans

    def add_constraints(self) -> None:
        """The rules of requests, those between them, and no more taken from a block than it has."""
        for spans in self.requests:
            spans.add_constraints()
        for place in {offer.block.place for offer in self.offers}:
            offers = [offer for offer in self.offers if offer.block.place == place]
            self._share(offers)
            self._share([offer for offer in offers if offer.whole_cores])
        self._order_twins()
        levels = [rule for rule in self.problem.constraints if rule.level != "l3"]
        add_rules_between(self.model, self.problem, self.requests, levels)

    def _share(self, offers: Sequence[Offer]) -> None:
        if len(offers) > 1:
            self.model.add(sum(offer.take for offer in offers) <= _cpus(offers))

    def _order_twins(self) -> None:
        """Of NUMA nodes that no request can tell apart, the earlier ones serve the larger requests.

        Any allocation can be rearranged so; the solver need not try the others.
        """
        nodes = tuple(range(len(self.problem.machine.numa_nodes)))
        for group in interchangeable(self.problem.machine, nodes):
            latest: dict[tuple[object, ...], int] = {}
            for node in group:
                offers = [offer for offer in self.offers if offer.block.numa == node]
                whole = [offer for offer in offers if offer.whole_cores]
                free = (self.problem.machine.numa_nodes[node].mask & self.problem.free).bit_count()
                look = (*(offer.look for offer in offers), _cpus(offers), _cpus(whole), free)
                if look in latest:
                    self.model.add(self._users(latest[look]) >= self._users(node))
                latest[look] = node

    def _users(self, node: int) -> Expr:
        """Which requests use the NUMA node, as a number in which larger requests count more."""
        by_size = sorted(self.requests, key=lambda spans: -spans.demand.cpus)[:40]
        users = {2**i: spans.numa_nodes.get(node) for i, spans in enumerate(reversed(by_size))}
        known = {weight: literal for weight, literal in users.items() if literal is not None}
        return dot(known.keys(), known.values())

    def _metrics(self, position: int) -> dict[str, Expr]:
        far = sum(self._far(offer) for offer in self.offers if offer.request == position)
        return self.requests[position].metrics() | {"outside_near": far}

    def _far(self, offer: Offer) -> cp_model.IntVar:
        far = self.model.new_int_var(0, max(offer.sizes), "far")
        self.model.add(far >= offer.take - offer.near)
        return far

    def hint(self, taken: Sequence[int]) -> dict[cp_model.IntVar, int]:
        """Values of the takes' variables in an allocation."""
        values: dict[cp_model.IntVar, int] = {}
        for spans, mask in zip(self.requests, taken, strict=True):
            values |= spans.hint(mask)
        return values

    def realize(self, search: Search) -> tuple[int, ...] | None:
        """The latest solution as an allocation: whole cores first, then request by request; ``None`` if stuck."""
        demands = self.problem.demands
        order = sorted(range(len(demands)), key=lambda i: not demands[i].request.full_cores)
        left, taken = self.problem.free, [0] * len(demands)
        for i in order:
            found = self._place(i, [search.value(take) for take in self.requests[i].takes], left)
            if found is None:
                return None
            taken[i] = found
            left &= ~found
        return tuple(taken)

    def _place(self, position: int, takes: Sequence[int], left: int) -> int | None:
        request = self.problem.requests[position]
        now = pose(self.problem.prepared, left, [request])
        costs = Costs(now, now.demands[0], l3s_add_up=now.l3s_nest)
        blocks = {block.place: block for block in blocks_of(now.demands[0], by_l3=False)}
        taken = 0
        for planned, take in zip(self.requests[position].blocks, takes, strict=True):
            block = blocks.get(planned.place)
            if take == 0:
                continue
            if block is None or take not in possible(costs.block(block.parts)):
                return None
            taken |= place_block(costs, block.parts, take)
        return taken


def _cpus(offers: Iterable[Offer]) -> int:
    """How many different CPUs are offered."""
    return union(offer.block.mask for offer in offers).bit_count()
