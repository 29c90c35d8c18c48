"""The full model of several requests: how many CPUs each takes of each core."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ortools.sat.python import cp_model

from models import to_mask
from solver.cpsat.constraints import (
    add_batch_constraints,
    add_core_constraints,
    add_span_constraints,
    define_split_cores,
    give_no_cpu_twice,
)
from solver.cpsat.objectives import core_metrics, span_metrics, summed, union_metrics
from solver.cpsat.search import Expr, Search
from solver.cpsat.ties import more_first, smallest_list
from solver.cpsat.variables import BatchVariables, CoreVariables, Literals, SpanVariables, lots, split_cores
from solver.problem import Problem
from solver.reduction.blocks import Block, blocks_of
from solver.score import joint_order


class BatchModel:
    """The model of several requests. ``metrics`` has an expression for each metric of all together, in order."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.lots = lots(self.model, problem)
        self.spans = [self._spans(i) for i in range(len(problem.demands))]
        self.cores = [CoreVariables(self.model, each, i, self.lots) for i, each in enumerate(problem.demands)]
        self.batch = BatchVariables(self.model, problem, self.spans, problem.constraints)
        self.split = split_cores(self.model, problem, self.cores)
        self.add_constraints()
        self.metrics = self._metrics()

    def _spans(self, position: int) -> SpanVariables:
        demand = self.problem.demands[position]
        blocks = blocks_of(demand, by_l3=True)
        sizes = [range(sum(part.size for part in block.parts) + 1) for block in blocks]
        return SpanVariables(self.model, self.problem, demand, blocks, sizes)

    def add_constraints(self) -> None:
        """No CPU is given twice, and the rules of and between requests hold."""
        give_no_cpu_twice(self.model, self.lots)
        for spans, cores in zip(self.spans, self.cores, strict=True):
            add_span_constraints(self.model, spans)
            add_core_constraints(self.model, cores, spans)
        add_batch_constraints(self.model, self.batch)
        define_split_cores(self.model, self.problem, self.split, self.cores)

    def _metrics(self) -> dict[str, Expr]:
        own = [
            span_metrics(spans) | core_metrics(cores, spans)
            for spans, cores in zip(self.spans, self.cores, strict=True)
        ]
        left = union_metrics(self.problem, self.batch, self.split)
        union = [metric.name for metric in joint_order(self.problem.requests, "union")]
        return summed(self.problem.requests, own, "span", "core") | {name: left[name] for name in union}

    def hint(self, taken: Sequence[int]) -> dict[cp_model.IntVar, int]:
        """Values of the variables that an allocation settles."""
        values = {
            take: sum(taken[i] >> cpu & 1 for cpu in lot.cpus)
            for lot in self.lots
            for i, take in lot.takes.items()
        }
        for spans, cores, mask in zip(self.spans, self.cores, taken, strict=True):
            values |= cores.hint(mask) | spans.hint(mask)
        return values

    def placed(self, search: Search) -> tuple[int, ...]:
        """The CPUs of each request in the latest solution: of each lot, earlier requests get the lower ones."""
        taken: list[list[int]] = [[] for _ in self.spans]
        for lot in self.lots:
            left = list(lot.cpus)
            for i, take in lot.takes.items():
                count = search.value(take)
                taken[i] += left[:count]
                left = left[count:]
        return tuple(map(to_mask, taken))

    def minimize_ties(self, search: Search) -> None:
        """Make the answer the one of the tie rule, request by request."""
        for spans, cores in zip(self.spans, self.cores, strict=True):
            for used in self._lists(spans):
                search.minimize(smallest_list(self.model, [used[domain] for domain in sorted(used)], length=None))
            for shares in _shares(search, spans, cores):
                if search.proven:
                    search.minimize(more_first(shares))

    def _lists(self, spans: SpanVariables) -> Iterator[Literals]:
        """Levels whose lists of used domains count first."""
        yield from (spans.numa_nodes, spans.sockets)
        if not self.problem.l3s_nest:
            yield spans.l3s


def _shares(search: Search, spans: SpanVariables, cores: CoreVariables) -> Iterator[list[tuple[Expr, int]]]:
    """Shares by NUMA node, by L3, then by core and by CPU where those leave a choice, with the most of each."""
    blocks = list(zip(spans.blocks, spans.takes, strict=True))
    yield _by_domain([(block.numa, take) for block, take in blocks], spans.demand.cpus)
    yield _by_domain([(block.place[-1], take) for block, take in blocks], spans.demand.cpus)
    parts = sorted((part for block in _open(search, spans) for part in block.parts), key=lambda part: part.core)
    yield [(cores.taken[part.core], part.size) for part in parts]
    yield [(take, 1) for lot, take in sorted(cores.lots, key=lambda pair: pair[0].cpus) if len(lot.cpus) == 1]


def _open(search: Search, spans: SpanVariables) -> list[Block]:
    """Blocks in NUMA nodes and L3s neither left alone nor used up: the shares settled fix the others."""
    taken, size = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for block, take in zip(spans.blocks, spans.takes, strict=True):
        for domain in _domains(block):
            taken[domain] += search.value(take)
            size[domain] += block.mask.bit_count()
    part = {domain for domain in taken if 0 < taken[domain] < size[domain]}
    return [block for block in spans.blocks if part.issuperset(_domains(block))]


def _by_domain(takes: Sequence[tuple[int, Expr]], most: int) -> list[tuple[Expr, int]]:
    shares: dict[int, Expr] = {}
    for domain, take in takes:
        shares[domain] = shares.get(domain, 0) + take
    return [(shares[domain], most) for domain in sorted(shares)]


def _domains(block: Block) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("numa", block.numa), ("l3", block.place[-1])
