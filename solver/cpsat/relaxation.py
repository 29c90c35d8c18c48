"""A relaxation of several requests: how many CPUs each takes from each NUMA node, blind to cores and L3s.

Whatever can really be placed satisfies this model, so its optima bound the real ones; and its shares, packed
request by request, usually are an allocation with just these values.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from models import union
from solver.counting import elements, takes_of
from solver.cpsat.constraints import add_batch_constraints, add_span_constraints, order_symmetric
from solver.cpsat.objectives import dot, numa_union_metrics, span_metrics, summed
from solver.cpsat.search import Expr, Search
from solver.cpsat.variables import BatchVariables, SpanVariables, excesses
from solver.problem import Problem
from solver.reduction.blocks import Block, blocks_of
from solver.reduction.costs import Costs
from solver.reduction.minplus import possible
from solver.reduction.pinning import place_block
from solver.reduction.symmetry import symmetric_pairs
from solver.score import joint_order

MOST_RANKED = 40
"""The number of requests, largest first, that order symmetric NUMA nodes: their weights are powers of 2."""


@dataclass(frozen=True)
class Offer:
    """What a block offers a request: ``sizes`` that it may take, and variables for what it takes and how far.

    ``far``: how many of the CPUs taken are not near, at least.
    """

    request: int
    block: Block
    sizes: tuple[int, ...]
    take: cp_model.LinearExpr
    far: cp_model.IntVar
    whole_cores: bool

    @property
    def near(self) -> int:
        """How many of the CPUs offered are near."""
        return sum(part.near.bit_count() for part in self.block.parts)

    @property
    def colour(self) -> Hashable:
        """All that distinguishes it from an offer of another NUMA node."""
        return (self.request, self.block.place[1:], self.block.mask.bit_count(), self.near, self.sizes)


class Relaxation:
    """The model of several requests on blocks of NUMA nodes; ``metrics`` has those that NUMA nodes decide."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.offers: list[Offer] = []
        self.requests = [self._request(i) for i in range(len(problem.demands))]
        rules = [rule for rule in problem.constraints if rule.level != "l3"]
        self.batch = BatchVariables(self.model, problem, self.requests, rules)
        self.add_constraints()
        own = [self._metrics(i) for i in range(len(problem.demands))]
        self.metrics = summed(problem.requests, own, "span")
        # Not knowing cores and L3s, which come before, it still bounds what is left of NUMA nodes.
        left = numa_union_metrics(problem, self.batch)
        wanted = [metric.name for metric in joint_order(problem.requests, "union")]
        self.metrics |= {name: left[name] for name in wanted if name in left}

    def _request(self, position: int) -> SpanVariables:
        demand = self.problem.demands[position]
        blocks = blocks_of(demand, by_l3=False)
        sizes = [(0, *elements(takes_of(demand, block.parts))) for block in blocks]
        spans = SpanVariables(self.model, self.problem, demand, blocks, sizes)
        far = excesses(self.model, sizes)
        self.offers += [
            Offer(position, *each, demand.request.full_cores)
            for each in zip(blocks, sizes, spans.takes, far, strict=True)
        ]
        return spans

    def add_constraints(self) -> None:
        """The rules of requests and between them, and no more taken from a block than it has."""
        for request in self.requests:
            add_span_constraints(self.model, request)
        add_batch_constraints(self.model, self.batch)
        self._share_blocks()
        self._define_far()
        order_symmetric(self.model, self._symmetric())

    def _share_blocks(self) -> None:
        """No more is taken from a block than its CPUs, and no more in whole cores than it has whole ones."""
        for place in {offer.block.place for offer in self.offers}:
            offers = [offer for offer in self.offers if offer.block.place == place]
            for some in (offers, [offer for offer in offers if offer.whole_cores]):
                if len(some) > 1:
                    self.model.add(sum(offer.take for offer in some) <= _cpus(some))

    def _define_far(self) -> None:
        """CPUs taken beyond the near ones of a block are far."""
        for offer in self.offers:
            self.model.add(offer.far >= offer.take - offer.near)

    def _symmetric(self) -> Iterator[tuple[Expr, Expr]]:
        """Ranks of NUMA nodes that no request can tell apart: the earlier ones serve the larger requests."""
        colours: dict[int, Hashable] = {}
        for node, domain in enumerate(self.problem.machine.numa_nodes):
            offers = [offer for offer in self.offers if offer.block.numa == node]
            whole, free = [offer for offer in offers if offer.whole_cores], (domain.mask & self.problem.free)
            alike = tuple(offer.colour for offer in offers)
            colours[node] = (alike, _cpus(offers), _cpus(whole), free.bit_count())
        for earlier, later in symmetric_pairs(self.problem.machine, colours):
            yield self._rank(earlier), self._rank(later)

    def _rank(self, node: int) -> Expr:
        """Which requests use the NUMA node, as a number in which larger requests count more."""
        by_size = sorted(self.requests, key=lambda spans: -spans.demand.cpus)[:MOST_RANKED]
        users = {2**i: spans.numa_nodes.get(node) for i, spans in enumerate(reversed(by_size))}
        known = {weight: literal for weight, literal in users.items() if literal is not None}
        return dot(known.keys(), known.values())

    def _metrics(self, position: int) -> dict[str, Expr]:
        far = sum(offer.far for offer in self.offers if offer.request == position)
        return span_metrics(self.requests[position]) | {"outside_near": far}

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
        now = Problem.of(self.problem.prepared, left, [request])
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
