"""One request: CP-SAT chooses how many CPUs come from each block; cost tables say what that entails."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from ortools.sat.python import cp_model

from models import DefectError
from solver.cpsat import objectives
from solver.cpsat.constraints import add_span_constraints, choose_one_take, define_squares, order_symmetric
from solver.cpsat.objectives import dot, table_metrics
from solver.cpsat.search import Expr, Objective, Search, Tuning
from solver.cpsat.ties import smallest_list
from solver.cpsat.variables import Literals, SpanVariables, Square, choices
from solver.limits import Limits
from solver.outcome import Outcome
from solver.problem import Demand, Problem
from solver.reduction.blocks import blocks_of, l3s_lie_in_blocks
from solver.reduction.costs import Costs
from solver.reduction.minplus import possible
from solver.reduction.pinning import UsedDomains, pin, place_block
from solver.reduction.symmetry import symmetric_pairs
from solver.score import names

FEW_BLOCKS = 16
"""Up to so many blocks the full linear relaxation saves the worst cases; with more it costs more than that."""


def solve_single(problem: Problem, limits: Limits, hint: int | None = None) -> Outcome:
    """The best allocation of the problem's only request, by all metrics and the tie rule."""
    (demand,) = problem.demands
    if not demand.parts:
        return Outcome(None, proven=True)
    model = SingleModel(problem, demand)
    search = Search(model.model, limits, Tuning(linearization=2 if len(model.blocks) <= FEW_BLOCKS else 1))
    if hint is not None:
        search.extend_hint(model.spans.hint(hint))
    search.minimize(model.objectives(names(demand.request, "span")))
    if not search.solved:
        return Outcome(None, search.infeasible, search.bounds)
    model.add_tables(search)
    search.minimize(model.objectives(names(demand.request, "core", "union")))
    bounds = dict(search.bounds)
    if not search.proven:
        return Outcome((model.placed(search),), False, bounds)
    metrics = {name: search.value(model.metrics[name]) for name in names(demand.request)}
    for level in model.tie_levels():
        search.minimize(smallest_list(model.model, level, length=sum(map(search.value, level))))
    costs = Costs(problem, demand, l3s_add_up=problem.l3s_nest)
    mask = pin(costs, model.used_domains(search), metrics)
    if mask is None:
        raise DefectError(f"no allocation has the metrics proven optimal, {metrics}")
    return Outcome((mask,), search.proven, bounds)


class SingleModel:
    """The model of one request. ``metrics`` has an expression for each metric; those of cores come with tables.

    ``hold_l3s``: blocks hold whole L3s, so that their tables say what using those costs.
    """

    def __init__(self, problem: Problem, demand: Demand) -> None:
        self.problem, self.demand, self.model = problem, demand, cp_model.CpModel()
        self.hold_l3s = problem.l3s_nest and l3s_lie_in_blocks(problem.machine, demand.parts)
        self.costs = Costs(problem, demand, l3s_add_up=self.hold_l3s)
        self.blocks = blocks_of(demand, by_l3=not self.hold_l3s)
        self.tables = [self.costs.block(block.parts) for block in self.blocks]
        self.takes = [possible(table) for table in self.tables]
        self.spans = SpanVariables(self.model, problem, demand, self.blocks, self.takes)
        add_span_constraints(self.model, self.spans)
        order_symmetric(self.model, self._symmetric())
        self.metrics: dict[str, Expr] = objectives.span_metrics(self.spans)
        self.choices: list[Literals] = []
        if demand.request.near is not None:
            self._add_choices(self.takes)

    def objectives(self, wanted: Sequence[str]) -> list[Objective]:
        """The metrics of these names."""
        return [Objective(name, self.metrics[name]) for name in wanted]

    def add_tables(self, search: Search) -> None:
        """Add the metrics of cores and L3s, now that the search has settled those of spans."""
        if not self.choices:
            shares = self._possible_shares(search)
            self._add_choices([[k for k in takes if k in shares] for takes in self.takes])
            search.extend_hint({choice: int(take == k) for take, k, choice in self._chosen(search)})
        squares = self._squares() if "numa_balance" in names(self.demand.request) else {}
        define_squares(self.model, squares.values())
        self.metrics |= self._leftovers(squares)

    def _symmetric(self) -> Iterator[tuple[Expr, Expr]]:
        """Takes from blocks that differ only in their place, in the order that the tie rule prefers."""
        if self._a_node_has_several_blocks:
            return
        takes, colours = dict[int, Expr](), dict[int, Hashable]()
        for block, table, take in zip(self.blocks, self.tables, self.spans.takes, strict=True):
            # All of the block's place but its NUMA node: socket, core type, and L3 where that may span nodes.
            colours[block.numa] = (*block.place[1:], self._free(block.numa), table.tobytes())
            takes[block.numa] = take
        for earlier, later in symmetric_pairs(self.problem.machine, colours):
            yield takes[earlier], takes[later]

    def _add_choices(self, options: Sequence[Sequence[int]]) -> None:
        self.choices = choices(self.model, options)
        choose_one_take(self.model, self.spans, self.choices)
        self.metrics |= table_metrics(self.costs, self.tables, self.choices)
        if not self.hold_l3s:
            self.metrics["l3_caches"] = objectives.l3_caches(self.spans)

    def _possible_shares(self, search: Search) -> Sequence[int]:
        """Takes from a block that the settled spans still allow: with even shares, only those near the mean."""
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

    def _squares(self) -> dict[int, Square]:
        """Squares of what stays free in the NUMA nodes of which several blocks, but not all, are part."""
        blocks = Counter(block.numa for block in self.blocks)
        return {
            node: Square.new(self.model, self._free(node) - self.spans.share(node), self._free(node))
            for node, count in blocks.items()
            if 1 < count < len(self.blocks)
        }

    def _free(self, node: int) -> int:
        return (self.problem.machine.numa_nodes[node].mask & self.problem.free).bit_count()

    def _leftovers(self, squares: Mapping[int, Square]) -> dict[str, Expr]:
        nodes = range(len(self.problem.machine.numa_nodes))
        found = {
            "numa_leftover": objectives.numa_leftover(self.problem, self.spans.numa_nodes),
            "numa_balance": sum(self._balance(node, squares) for node in nodes),
        }
        if not self.hold_l3s:
            found["l3_leftover"] = objectives.l3_leftover(self.problem, self.spans.l3s)
        return found

    def _balance(self, node: int, squares: Mapping[int, Square]) -> Expr:
        """(free - share)² of one NUMA node: a constant, a sum over choices, or a square."""
        free, mine = self._free(node), [i for i, block in enumerate(self.blocks) if block.numa == node]
        if len(mine) == len(self.blocks):
            return (free - self.demand.cpus) ** 2
        if len(mine) == 1:
            choice = self.choices[mine[0]]
            return dot([(free - k) ** 2 for k in choice], choice.values())
        return squares[node].value if node in squares else free**2

    def tie_levels(self) -> list[Sequence[cp_model.IntVar]]:
        """The levels whose lists of used domains the tie rule compares first, before shares."""
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
