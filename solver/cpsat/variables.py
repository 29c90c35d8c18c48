"""The variables: every one of them is made here. What they mean is in ``constraints``.

Literals are by domain: its position in the machine's tuple of that level (for core types, in ``CORE_TYPES``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import get_args

from ortools.sat.python import cp_model

from models import Constraint, from_mask
from models.request import CoreType, Level
from solver.cpsat.search import Expr
from solver.problem import Demand, Problem
from solver.reduction.blocks import Block
from solver.score import joint_order

Literals = dict[int, cp_model.IntVar]
"""A literal per domain."""

CORE_TYPES = get_args(CoreType)


class SpanVariables:
    """How many CPUs one request takes from each of its blocks, and which domains that uses.

    ``takes``: expressions, from each block; ``sizes`` are the numbers of CPUs possible, block by block.
    ``highest``, ``lowest``: bounds on the shares of used NUMA nodes, with the ``excess`` over an even split, where
    the request is distributed; ``shortfall``: NUMA nodes missing to ``numa_min``, where that is set.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        problem: Problem,
        demand: Demand,
        blocks: Sequence[Block],
        sizes: Sequence[Sequence[int]],
    ) -> None:
        self.problem, self.demand, self.blocks, self.sizes = problem, demand, blocks, sizes
        # Where whole cores leave only multiples, counting in them lets parity show at once.
        self.step = gcd(*(size for possible in sizes for size in possible)) or 1
        domains = [cp_model.Domain.from_values([size // self.step for size in possible]) for possible in sizes]
        self.steps = [model.new_int_var_from_domain(domain, "steps") for domain in domains]
        self.takes = [self.step * steps for steps in self.steps]
        self.used_blocks = [model.new_bool_var("used block") for _ in blocks]
        self.users: list[tuple[cp_model.IntVar, list[cp_model.IntVar]]] = []
        self.numa_nodes = self._used(model, lambda block: block.numa)
        self.sockets = self._used(model, lambda block: block.socket)
        self.core_types = self._used(model, lambda block: CORE_TYPES.index(block.core_type))
        self.l3s = self._used(model, lambda block: -1 if block.l3 is None else block.l3)
        self.highest, self.lowest, self.excess = self._unevenness(model)
        self.shortfall = model.new_int_var(0, demand.floor, "shortfall") if demand.floor else 0
        self.distance = DistanceVariables(model, problem, self.numa_nodes)

    def _used(self, model: cp_model.CpModel, domain_of: Callable[[Block], int]) -> Literals:
        """A literal per domain: that of its only block, or a new one for several, which go to ``users``."""
        blocks: dict[int, list[cp_model.IntVar]] = {}
        for block, used in zip(self.blocks, self.used_blocks, strict=True):
            blocks.setdefault(domain_of(block), []).append(used)
        found = {
            domain: used[0] if len(used) == 1 else model.new_bool_var("used domain")
            for domain, used in blocks.items()
        }
        self.users += [(found[domain], used) for domain, used in blocks.items() if len(used) > 1]
        return found

    def _unevenness(self, model: cp_model.CpModel) -> tuple[Expr, Expr, Expr]:
        if self.demand.request.policy == "packed":
            return 0, 0, 0
        highest, lowest, excess = (
            model.new_int_var(0, self.demand.cpus, name) for name in ("highest", "lowest", "excess")
        )
        return highest, lowest, excess

    def share(self, node: int) -> Expr:
        """How many CPUs come from the NUMA node at this position."""
        return sum(take for block, take in zip(self.blocks, self.takes, strict=True) if block.numa == node)

    def level(self, level: Level) -> Literals:
        """The literals of a level that requests can be bound to."""
        return {"numa": self.numa_nodes, "socket": self.sockets, "l3": self.l3s}[level]

    def hint(self, mask: int) -> dict[cp_model.IntVar, int]:
        """Values of the takes' variables in an allocation."""
        shares = [(block.mask & mask).bit_count() // self.step for block in self.blocks]
        return dict(zip(self.steps, shares, strict=True))


class DistanceVariables:
    """Of each group of NUMA nodes that may change places, how many are used, and products of these numbers.

    ``pairs``: pairs of used nodes within a group, ``None`` for a single node; ``products``: by positions of two
    groups, the later first.
    """

    def __init__(self, model: cp_model.CpModel, problem: Problem, used: Literals) -> None:
        self.groups = problem.machine.interchangeable(tuple(used))
        sizes = [len(group) for group in self.groups]
        self.members = [[used[node] for node in group] for group in self.groups]
        self.counts = [
            literals[0] if len(literals) == 1 else model.new_int_var(0, len(literals), "count")
            for literals in self.members
        ]
        self.pairs = [model.new_int_var(0, n * (n - 1) // 2, "pairs") if n > 1 else None for n in sizes]
        self.products = {
            (i, j): model.new_int_var(0, sizes[i] * sizes[j], "product")
            for i in range(len(sizes))
            for j in range(i)
        }


def choices(model: cp_model.CpModel, options: Sequence[Sequence[int]]) -> list[Literals]:
    """Of each block, a literal for each number of CPUs that it may give."""
    return [{k: model.new_bool_var("choice") for k in takes} for takes in options]


def excesses(model: cp_model.CpModel, sizes: Sequence[Sequence[int]]) -> list[cp_model.IntVar]:
    """Of each block, how many CPUs are taken beyond some number: at most the largest of its sizes."""
    return [model.new_int_var(0, max(possible), "excess") for possible in sizes]


@dataclass(frozen=True)
class Square:
    """``value`` is to be the square of ``root``, which is to be equal to ``of``."""

    of: Expr
    root: cp_model.IntVar
    value: cp_model.IntVar

    @classmethod
    def new(cls, model: cp_model.CpModel, of: Expr, most: int) -> "Square":
        """Of an expression between 0 and ``most``."""
        return cls(of, model.new_int_var(0, most, "root"), model.new_int_var(0, most**2, "square"))


@dataclass(frozen=True)
class Lot:
    """Free CPUs of one core that no request can tell apart; ``takes``: how many each request gets, by position."""

    core: int
    cpus: tuple[int, ...]
    takes: Literals

    @property
    def mask(self) -> int:
        """Its CPUs as a mask."""
        return sum(1 << cpu for cpu in self.cpus)


def lots(model: cp_model.CpModel, problem: Problem) -> list[Lot]:
    """The lots of all cores, with variables for the requests that may take from them."""
    return [lot for core in range(len(problem.machine.cores)) for lot in _lots_of(model, problem, core)]


def _lots_of(model: cp_model.CpModel, problem: Problem, core: int) -> Iterator[Lot]:
    """CPUs of a core are interchangeable unless the requests' own rules tell them apart: then each is a lot."""
    cpus = sorted(from_mask(problem.machine.cores[core].mask & problem.free))
    kinds = {
        tuple((demand.allowed >> cpu & 1, demand.near >> cpu & 1) for demand in problem.demands) for cpu in cpus
    }
    for members in [cpus] if len(kinds) == 1 else [[cpu] for cpu in cpus]:
        takers = [i for i, demand in enumerate(problem.demands) if demand.allowed >> members[0] & 1]
        takes = {i: model.new_int_var(0, len(members), "take") for i in takers}
        if takes:
            yield Lot(core, tuple(members), takes)


class CoreVariables:
    """How many CPUs one of several requests takes of each core, and which cores it uses; by core position."""

    def __init__(self, model: cp_model.CpModel, demand: Demand, position: int, lots: Sequence[Lot]) -> None:
        self.demand = demand
        self.lots = [(lot, lot.takes[position]) for lot in lots if position in lot.takes]
        self.taken: dict[int, Expr] = {}
        for lot, take in self.lots:
            self.taken[lot.core] = self.taken.get(lot.core, 0) + take
        self.used = {part.core: model.new_bool_var("used core") for part in demand.parts}

    def hint(self, mask: int) -> dict[cp_model.IntVar, int]:
        """Values of the literals of cores in an allocation."""
        return {self.used[part.core]: int(part.allowed & mask > 0) for part in self.demand.parts}


@dataclass(frozen=True)
class AnyUser:
    """Per domain a literal that is to be true where any of several requests uses it, and those requests' literals.

    The literal of an only user is its own.
    """

    used: Literals
    users: dict[int, list[cp_model.IntVar]]

    @classmethod
    def new(cls, model: cp_model.CpModel, used: Sequence[Literals]) -> "AnyUser":
        """Of the requests with these literals."""
        users = cls.users_of(used)
        found = {
            domain: literals[0] if len(literals) == 1 else model.new_bool_var("any user")
            for domain, literals in users.items()
        }
        return cls(found, users)

    @staticmethod
    def users_of(used: Sequence[Literals]) -> dict[int, list[cp_model.IntVar]]:
        """By domain, the literals of the requests that may use it."""
        domains = sorted({domain for literals in used for domain in literals if domain >= 0})
        return {domain: [each[domain] for each in used if domain in each] for domain in domains}


class BatchVariables:
    """What several requests use and leave free together.

    ``numa_nodes``, ``l3s``: the domains that any request uses; ``matched``: those that any request uses of a rule
    that matches, in the order of these rules; ``left``: of each NUMA node the square of its free CPUs that stay
    free.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        problem: Problem,
        requests: Sequence[SpanVariables],
        rules: Sequence[Constraint],
    ) -> None:
        self.requests = requests
        self.rules = [(rule, rule.concerns(request.name for request in problem.requests)) for rule in rules]
        self.numa_nodes = AnyUser.new(model, [each.numa_nodes for each in requests])
        self.l3s = AnyUser.new(model, [each.l3s for each in requests])
        self.matched = [
            AnyUser.new(model, [requests[i].level(rule.level) for i in concerned])
            for rule, concerned in self.rules
            if rule.match
        ]
        counts = any(metric.name == "numa_balance" for metric in joint_order(problem.requests))
        self.left = list(self._left(model, problem, requests)) if counts else []

    def _left(self, model: cp_model.CpModel, problem: Problem, spans: Sequence[SpanVariables]) -> Iterator[Square]:
        for position, node in enumerate(problem.machine.numa_nodes):
            free = (node.mask & problem.free).bit_count()
            yield Square.new(model, free - sum(each.share(position) for each in spans), free)


def split_cores(model: cp_model.CpModel, problem: Problem, requests: Sequence[CoreVariables]) -> Literals:
    """A literal per core that may keep free CPUs though one of the requests, whose threads are packed, uses it."""
    cores = {core for request in requests if request.demand.request.threads == "pack" for core in request.used}
    free = {core: (problem.machine.cores[core].mask & problem.free).bit_count() for core in sorted(cores)}
    return {core: model.new_bool_var("split core") for core, size in free.items() if size > 1}
