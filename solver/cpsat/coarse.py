"""Several requests, coarsely: how many CPUs each takes from each NUMA node, blind to cores and L3s.

Whatever can really be placed satisfies this model, so its optima bound the real ones; and its shares, packed
request by request, usually are an allocation with just these values.
"""

from collections.abc import Sequence
from itertools import groupby

from ortools.sat.python import cp_model

from solver.cpsat.blocks import Block, blocks_of
from solver.cpsat.minplus import possible
from solver.cpsat.pin import place_block
from solver.cpsat.rules import add_rules_between
from solver.cpsat.search import Expr, Search
from solver.cpsat.spans import SpanModel
from solver.cpsat.tables import Costs
from solver.problem import Problem, pose
from solver.score import joint_slots, slots

COARSE_SLOTS = 7
"""Slots that are decided by how many CPUs come from which NUMA node."""


class CoarseModel:
    """The model of several requests on blocks of NUMA nodes; ``metrics`` has the first slots of the order."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.requests = [self._spans(i) for i in range(len(problem.demands))]
        self.add_constraints()
        own = [self._metrics(spans) for spans in self.requests]
        self.metrics: dict[str, Expr] = {
            name: sum(
                metrics[metric]
                for metrics, request in zip(own, problem.requests, strict=True)
                if (metric := slots(request)[slot]) is not None
            )
            for slot, name in joint_slots(problem.requests)
            if slot < COARSE_SLOTS
        }

    def _spans(self, position: int) -> SpanModel:
        demand = self.problem.demands[position]
        costs = Costs(self.problem, demand)
        blocks = blocks_of(demand, by_l3=False)
        takes = [possible(costs.block(block.parts)) for block in blocks]
        return SpanModel(self.model, self.problem, demand, blocks, takes)

    def add_constraints(self) -> None:
        """Requests do not take more from a block than it has, nor more whole cores than are whole."""
        everyone = [
            (block, take, spans.demand.request.full_cores)
            for spans in self.requests
            for block, take in zip(spans.blocks, spans.takes, strict=True)
        ]
        by_place = sorted(everyone, key=lambda each: each[0].place)
        for _, users in groupby(by_place, key=lambda each: each[0].place):
            self._share(list(users))
        for spans in self.requests:
            spans.add_constraints()
        levels = [rule for rule in self.problem.constraints if rule.level != "l3"]
        add_rules_between(self.model, self.problem, self.requests, levels)

    def _share(self, users: Sequence[tuple[Block, cp_model.IntVar, bool]]) -> None:
        for some in (users, [user for user in users if user[2]]):
            cpus = 0
            for block, _, _ in some:
                cpus |= block.mask
            if len(some) > 1:
                self.model.add(sum(take for _, take, _ in some) <= cpus.bit_count())

    def _metrics(self, spans: SpanModel) -> dict[str, Expr]:
        metrics = spans.metrics()
        if spans.demand.request.near is not None:
            metrics["outside_near"] = sum(
                self._far(take, block) for block, take in zip(spans.blocks, spans.takes, strict=True)
            )
        return metrics

    def _far(self, take: cp_model.IntVar, block: Block) -> cp_model.IntVar:
        near = sum(part.near.bit_count() for part in block.parts)
        far = self.model.new_int_var(0, block.mask.bit_count(), "far")
        self.model.add(far >= take - near)
        return far

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
        costs = Costs(now, now.demands[0])
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
