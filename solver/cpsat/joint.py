"""Several requests together: CP-SAT decides how many CPUs each request takes of each core."""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from models import to_mask
from solver.cpsat.alone import SUMMED_SLOTS
from solver.cpsat.expressions import summed
from solver.cpsat.lots import RequestModel, lots_of
from solver.cpsat.rules import add_rules_between
from solver.cpsat.search import Expr, Search
from solver.cpsat.unions import UNION_METRICS
from solver.problem import Problem
from solver.score import joint_slots


class JointModel:
    """The model of several requests. ``metrics`` has an expression for each metric of all together."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.lots = [
            lot for core in range(len(problem.machine.cores)) for lot in lots_of(self.model, problem, core)
        ]
        self.requests = [
            RequestModel(self.model, problem, i, demand, self.lots) for i, demand in enumerate(problem.demands)
        ]
        self.add_constraints()
        first = summed(problem.requests, [request.metrics for request in self.requests], SUMMED_SLOTS)
        last = [name for slot, name in joint_slots(problem.requests) if slot >= SUMMED_SLOTS]
        self.metrics = first | {name: self._of_all(name) for name in last}

    def add_constraints(self) -> None:
        """No CPU is given twice, and the rules of and between requests hold."""
        for lot in self.lots:
            self.model.add(sum(lot.takes.values()) <= len(lot.cpus))
        for request in self.requests:
            request.add_constraints()
        spans = [request.spans for request in self.requests]
        add_rules_between(self.model, self.problem, spans, self.problem.constraints)

    def _of_all(self, name: str) -> Expr:
        if name == "split_cores":
            return self._split_cores()
        return UNION_METRICS[name](self.model, self.problem, [request.spans for request in self.requests])

    def _split_cores(self) -> Expr:
        """Cores that requests with packed threads use and that are not all given."""
        split: list[cp_model.IntVar] = []
        for core, domain in enumerate(self.problem.machine.cores):
            free = (domain.mask & self.problem.free).bit_count()
            users = [each.used[core] for each in self.requests if each.packs_threads and core in each.used]
            if users and free > 1:
                taken = sum(each.taken[core] for each in self.requests if core in each.taken)
                split.append(self._is_split(users, taken, free))
        return sum(split)

    def _is_split(self, users: Sequence[cp_model.IntVar], taken: Expr, free: int) -> cp_model.IntVar:
        split = self.model.new_bool_var("split")
        for used in users:
            self.model.add(taken >= free).only_enforce_if(used, ~split)
        return split

    def hint(self, taken: Sequence[int]) -> dict[cp_model.IntVar, int]:
        """Values of the variables that an allocation settles."""
        values = {
            take: sum(taken[i] >> cpu & 1 for cpu in lot.cpus)
            for lot in self.lots
            for i, take in lot.takes.items()
        }
        for request, mask in zip(self.requests, taken, strict=True):
            values |= request.hint(mask)
        return values

    def placed(self, search: Search) -> tuple[int, ...]:
        """The CPUs of each request in the latest solution: of each lot, earlier requests get the lower ones."""
        taken: list[list[int]] = [[] for _ in self.requests]
        for lot in self.lots:
            left = list(lot.cpus)
            for i, take in lot.takes.items():
                count = search.value(take)
                taken[i] += left[:count]
                left = left[count:]
        return tuple(map(to_mask, taken))
