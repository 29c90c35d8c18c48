"""How many CPUs each request takes of each core, where several requests compete.

CPUs of a core are interchangeable unless the requests' own rules tell them apart; then each is a lot of its own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from models import from_mask
from solver.cpsat.search import Expr, Search
from solver.cpsat.spans import SpanModel
from solver.cpsat.ties import more_first, smallest_list
from solver.problem import Demand, Problem
from solver.tables.blocks import Block, blocks_of


@dataclass(frozen=True)
class Lot:
    """Free CPUs of one core that no request can tell apart; ``takes``: how many each request gets, by position."""

    core: int
    cpus: tuple[int, ...]
    takes: dict[int, cp_model.IntVar]

    @property
    def mask(self) -> int:
        """Its CPUs as a mask."""
        return sum(1 << cpu for cpu in self.cpus)


def lots_of(model: cp_model.CpModel, problem: Problem, core: int) -> Iterator[Lot]:
    """The lots of one core, with variables for the requests that may take from them."""
    cpus = sorted(from_mask(problem.machine.cores[core].mask & problem.free))
    kinds = {
        tuple((demand.allowed >> cpu & 1, demand.near >> cpu & 1) for demand in problem.demands) for cpu in cpus
    }
    for members in [cpus] if len(kinds) == 1 else [[cpu] for cpu in cpus]:
        takers = [i for i, demand in enumerate(problem.demands) if demand.allowed >> members[0] & 1]
        takes = {i: model.new_int_var(0, len(members), "take") for i in takers}
        if takes:
            yield Lot(core, tuple(members), takes)


class RequestModel:
    """One of several requests: what it takes of each core, tied to the model of its spans.

    ``taken`` and ``used`` are by core position; ``metrics`` are the request's own, slots 1 to 9.
    """

    def __init__(
        self, model: cp_model.CpModel, problem: Problem, position: int, demand: Demand, lots: Sequence[Lot]
    ) -> None:
        self.model, self.problem, self.demand = model, problem, demand
        self.lots = [(lot, lot.takes[position]) for lot in lots if position in lot.takes]
        blocks = blocks_of(demand, by_l3=True)
        sizes = [sum(part.size for part in block.parts) for block in blocks]
        self.spans = SpanModel(model, problem, demand, blocks, [range(size + 1) for size in sizes])
        self.taken: dict[int, Expr] = {}
        for lot, take in self.lots:
            self.taken[lot.core] = self.taken.get(lot.core, 0) + take
        self.used = {part.core: model.new_bool_var("used core") for part in demand.parts}
        self.metrics = self._metrics()

    @property
    def packs_threads(self) -> bool:
        """Whether stranded threads count for this request."""
        return self.demand.request.threads == "pack"

    def add_constraints(self) -> None:
        """Cores add up to blocks, and the request's rules about cores and spans hold."""
        self.spans.add_constraints()
        for block, take in zip(self.spans.blocks, self.spans.takes, strict=True):
            self.model.add(take == sum(self.taken[part.core] for part in block.parts))
        for part in self.demand.parts:
            most = 1 if self.demand.spans.one_thread else part.size
            least = part.size if self.demand.request.full_cores else 1
            self.model.add(self.taken[part.core] <= most * self.used[part.core])
            self.model.add(self.taken[part.core] >= least * self.used[part.core])
        if self.demand.spans.one_l3:
            self.model.add(self.metrics["l3_caches"] <= 1)

    def _metrics(self) -> dict[str, Expr]:
        cores = sum(self.used.values())
        far = [take for lot, take in self.lots if lot.mask & ~self.demand.near]
        return self.spans.metrics() | {
            "outside_near": sum(far),
            "cores": cores,
            "doubled_threads": self.demand.cpus - cores,
            "l3_caches": sum(used for l3, used in self.spans.l3s.items() if l3 >= 0),
        }

    def hint(self, mask: int) -> dict[cp_model.IntVar, int]:
        """Values in an allocation of the variables that stand for cores and blocks."""
        used = {self.used[part.core]: int(part.allowed & mask > 0) for part in self.demand.parts}
        return used | self.spans.hint(mask)

    def minimize_ties(self, search: Search) -> None:
        """Make the answer the one of the tie rule: lists of used domains, then shares, then CPU numbers."""
        for used in self._lists():
            search.minimize(smallest_list(self.model, [used[domain] for domain in sorted(used)], length=None))
        for shares in self._shares(search):
            if search.proven:
                search.minimize(more_first(shares))

    def _lists(self) -> Iterator[dict[int, cp_model.IntVar]]:
        yield from (self.spans.numa_nodes, self.spans.sockets)
        if not self.problem.l3s_nest:
            yield self.spans.l3s

    def _shares(self, search: Search) -> Iterator[list[tuple[Expr, int]]]:
        """Shares by NUMA node, by L3, then by core and by CPU where those leave a choice."""
        blocks = list(zip(self.spans.blocks, self.spans.takes, strict=True))
        yield self._by_domain([(block.numa, take) for block, take in blocks])
        yield self._by_domain([(block.place[-1], take) for block, take in blocks])
        cores = sorted((part for block in self._open(search) for part in block.parts), key=lambda part: part.core)
        yield [(self.taken[part.core], part.size) for part in cores]
        yield [(take, 1) for lot, take in sorted(self.lots, key=lambda pair: pair[0].cpus) if len(lot.cpus) == 1]

    def _open(self, search: Search) -> list[Block]:
        """Blocks in NUMA nodes and L3s neither left alone nor used up: the shares settled fix the others."""
        taken, size = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for block, take in zip(self.spans.blocks, self.spans.takes, strict=True):
            for domain in _domains(block):
                taken[domain] += search.value(take)
                size[domain] += block.mask.bit_count()
        part = {domain for domain in taken if 0 < taken[domain] < size[domain]}
        return [block for block in self.spans.blocks if part.issuperset(_domains(block))]

    def _by_domain(self, takes: Sequence[tuple[int, Expr]]) -> list[tuple[Expr, int]]:
        shares: dict[int, Expr] = {}
        for domain, take in takes:
            shares[domain] = shares.get(domain, 0) + take
        return [(shares[domain], self.demand.cpus) for domain in sorted(shares)]


def _domains(block: Block) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("numa", block.numa), ("l3", block.place[-1])
