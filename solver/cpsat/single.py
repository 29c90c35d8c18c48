"""One request: CP-SAT chooses how many CPUs come from each block; cost tables say what that entails."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ortools.sat.python import cp_model

from models import DefectError
from solver.cpsat.expressions import dot, square
from solver.cpsat.search import Expr, Limits, Objective, Search
from solver.cpsat.spans import SpanModel
from solver.cpsat.ties import smallest_list
from solver.outcome import Outcome
from solver.problem import Demand, Problem
from solver.score import slots
from solver.tables.blocks import blocks_of, l3s_lie_in_blocks
from solver.tables.costs import Costs
from solver.tables.minplus import Table, possible
from solver.tables.pin import UsedDomains, pin, place_block
from solver.tables.twins import interchangeable

FEW_BLOCKS = 16

SPAN_SLOTS = 7
"""The first slots of the order are decided by how many CPUs come from where."""


def solve_single(problem: Problem, limits: Limits, hint: int | None = None) -> Outcome:
    """The best allocation of the problem's only request, by all metrics and the tie rule."""
    (demand,) = problem.demands
    if not demand.parts:
        return Outcome(None, proven=True)
    model = SingleModel(problem, demand)
    # The full linear relaxation saves the worst cases, until there are so many nodes that it costs more.
    relaxation = 2 if len(model.blocks) <= FEW_BLOCKS else 1
    search = Search(model.model, replace(limits, linearization=relaxation))
    if hint is not None:
        search.extend_hint(model.spans.hint(hint))
    order = slots(demand.request)
    search.minimize(model.objectives(order[:SPAN_SLOTS]))
    if not search.solved:
        return Outcome(None, search.infeasible, search.bounds)
    model.add_tables(search)
    search.minimize(model.objectives(order[SPAN_SLOTS:]))
    bounds = dict(search.bounds)
    if not search.proven:
        return Outcome((model.placed(search),), False, bounds)
    metrics = {name: search.value(model.metrics[name]) for name in order if name is not None}
    for level in model.tie_levels():
        search.minimize(smallest_list(model.model, level, length=sum(map(search.value, level))))
    costs = Costs(problem, demand, l3s_add_up=problem.l3s_nest)
    mask = pin(costs, model.used_domains(search), metrics)
    if mask is None:
        raise DefectError(f"no allocation has the metrics proven optimal, {metrics}")
    return Outcome((mask,), search.proven, bounds)


class SingleModel:
    """The model of one request. ``metrics`` has an expression for each metric; the local ones come with tables."""

    def __init__(self, problem: Problem, demand: Demand) -> None:
        self.problem, self.demand = problem, demand
        self.model = cp_model.CpModel()
        self.inside = problem.l3s_nest and l3s_lie_in_blocks(demand.parts)
        self.costs = Costs(problem, demand, l3s_add_up=self.inside)
        self.blocks = blocks_of(demand, by_l3=not self.inside)
        self.tables = [self.costs.block(block.parts) for block in self.blocks]
        self.spans = SpanModel(
            self.model, problem, demand, self.blocks, [possible(table) for table in self.tables]
        )
        self.spans.add_constraints()
        self._order_twins()
        self.metrics: dict[str, Expr] = self.spans.metrics()
        self.choices: list[dict[int, cp_model.IntVar]] = []
        if demand.request.near is not None or demand.spans.one_l3:
            self._add_choices([possible(table) for table in self.tables])

    def objectives(self, names: Sequence[str | None]) -> list[Objective]:
        """The metrics of these names."""
        return [Objective(name, self.metrics[name]) for name in names if name is not None]

    def add_tables(self, search: Search) -> None:
        """Add the metrics that cost tables give, now that the search has settled those of spans."""
        if not self.choices:
            shares = self._possible_shares(search)
            self._add_choices([[k for k in possible(table) if k in shares] for table in self.tables])
            search.extend_hint({choice: int(take == k) for take, k, choice in self._chosen(search)})
        self.metrics |= self._leftovers()

    def _order_twins(self) -> None:
        """Of blocks that differ only in their place, earlier ones give no less, as the tie rule wants it."""
        if self._a_node_has_several_blocks:
            return
        by_node = {block.numa: i for i, block in enumerate(self.blocks)}
        for group in interchangeable(self.problem.machine, tuple(by_node)):
            last: dict[tuple[object, ...], int] = {}
            for i in (by_node[node] for node in group):
                free = (self.problem.machine.numa_nodes[self.blocks[i].numa].mask & self.problem.free).bit_count()
                # All of the block's place but its NUMA node: socket, core type, and L3 where that may span nodes.
                twin = last.get(key := (*self.blocks[i].place[1:], free, self.tables[i].tobytes()))
                if twin is not None:
                    self.model.add(self.spans.takes[twin] >= self.spans.takes[i])
                last[key] = i

    def _add_choices(self, options: Sequence[Sequence[int]]) -> None:
        for take, ks in zip(self.spans.takes, options, strict=True):
            choice = {k: self.model.new_bool_var("choice") for k in ks}
            self.model.add_exactly_one(choice.values())
            self.model.add(take == dot(choice.keys(), choice.values()))
            self.choices.append(choice)
        self.metrics |= {name: self._by_take(name) for name in self.costs.packing.largest}
        if not self.inside:
            self.metrics["l3_caches"] = sum(self.spans.l3s.values())
        if self.demand.spans.one_l3:
            self.model.add(self.metrics["l3_caches"] <= 1)

    def _possible_shares(self, search: Search) -> Sequence[int]:
        """Takes from a block that the spans found still allow: with even shares, only those about the mean."""
        if self.demand.request.policy == "packed" or not search.proven or self._a_node_has_several_blocks:
            return range(self.demand.cpus + 1)
        nodes = search.value(self.metrics["numa_nodes"])
        width = search.value(self.metrics["unevenness"]) + self.demand.unit
        least, most = -(-self.demand.cpus // nodes) - width, self.demand.cpus // nodes + width
        return [0, *range(max(1, least), most + 1)]

    @property
    def _a_node_has_several_blocks(self) -> bool:
        return len({block.numa for block in self.blocks}) < len(self.blocks)

    def _chosen(self, search: Search) -> Iterator[tuple[int, int, cp_model.IntVar]]:
        for take, choice in zip(self.spans.takes, self.choices, strict=True):
            for k, literal in choice.items():
                yield search.value(take), k, literal

    def _by_take(self, name: str) -> Expr:
        """Sum of one field of the tables at the takes chosen."""
        pairs = [
            (literal, cost)
            for table, choice in zip(self.tables, self.choices, strict=True)
            for literal, cost in zip(choice.values(), self._costs(name, table, choice.keys()), strict=True)
        ]
        return dot([cost for _, cost in pairs], [literal for literal, _ in pairs])

    def _costs(self, name: str, table: Table, takes: Iterable[int]) -> list[int]:
        return self.costs.packing.field(name, table[list(takes)])

    def _leftovers(self) -> dict[str, Expr]:
        free = self.problem.free
        nodes = [(node.mask & free).bit_count() for node in self.problem.machine.numa_nodes]
        l3s = [(l3.mask & free).bit_count() for l3 in self.problem.machine.l3s]
        found: dict[str, Expr] = {
            "numa_leftover": dot([nodes[i] for i in self.spans.numa_nodes], self.spans.numa_nodes.values())
            - self.demand.cpus,
        }
        if self.demand.request.policy == "distributed" or self.demand.request.fit == "loose":
            found["numa_balance"] = sum(self._balance(node, size) for node, size in enumerate(nodes))
        if not self.inside:
            used = self.spans.l3s
            found["l3_leftover"] = dot([l3s[i] for i in used], used.values()) - self.demand.cpus
        return found

    def _balance(self, node: int, free: int) -> Expr:
        """(free - share)² of one NUMA node."""
        mine = [i for i, block in enumerate(self.blocks) if block.numa == node]
        if not mine:
            return free**2
        if len(mine) == len(self.blocks):
            return (free - self.demand.cpus) ** 2
        if len(mine) == 1:
            choice = self.choices[mine[0]]
            return dot([(free - k) ** 2 for k in choice], choice.values())
        return square(self.model, free - self.spans.share(node), free)

    def tie_levels(self) -> list[Sequence[cp_model.IntVar]]:
        """The levels whose lists of used domains the tie rule compares before it looks at shares."""
        levels = [self.spans.numa_nodes, self.spans.sockets]
        if not self.problem.l3s_nest:
            levels.append(self.spans.l3s)
        return [[used[i] for i in sorted(used)] for used in levels]

    def used_domains(self, search: Search) -> UsedDomains:
        """The domains that the latest solution uses."""
        used = [
            tuple(sorted(i for i, literal in level.items() if search.value(literal)))
            for level in (self.spans.numa_nodes, self.spans.sockets, self.spans.l3s)
        ]
        return UsedDomains(used[0], used[1], None if self.problem.l3s_nest else used[2])

    def placed(self, search: Search) -> int:
        """Mask of CPUs that the latest solution stands for."""
        takes = map(search.value, self.spans.takes)
        return sum(
            place_block(self.costs, block.parts, take) for block, take in zip(self.blocks, takes, strict=True)
        )
