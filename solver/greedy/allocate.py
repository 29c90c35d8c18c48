"""The greedy engine: the kubelet's algorithm for each request in turn, with our options as filters and floors.

A request without options that the kubelet lacks gets the kubelet's own answer. For others several answers are
made (``options``), and the best that keeps the rules is taken.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from models import Level, union
from solver.greedy.options import answers_from, narrower_pools
from solver.problem import Demand, Problem
from solver.verify import violations
from topologies.graph import Machine

MOST_CHOICES = 200
"""Choices of matched domains that are tried; a search through all of them is not for the greedy."""


def allocate(problem: Problem) -> tuple[int, ...] | None:
    """A mask per request, or ``None`` if greedy finds nothing, which is no proof."""
    for pools in _matched_pools(problem):
        taken = _one_by_one(problem, pools)
        if taken is not None:
            return taken
    return None


def _matched_pools(problem: Problem) -> Iterator[list[int]]:
    """For each request the CPUs that ``match`` leaves it, for each choice of the domains that are matched."""
    names = [request.name for request in problem.requests]
    matches = {(rule.level, tuple(rule.concerns(names))) for rule in problem.constraints if rule.match}
    pools = [demand.allowed for demand in problem.demands]
    choices = _choices(problem, sorted(matches, key=lambda match: -len(match[1])), pools)
    yield from islice(choices, MOST_CHOICES)


def _choices(
    problem: Problem, matches: Sequence[tuple[Level, tuple[int, ...]]], pools: list[int]
) -> Iterator[list[int]]:
    """The pools of each choice of a domain per match that leaves every request enough."""
    if not matches:
        yield pools
        return
    (level, positions), *rest = matches
    for domain in _domains(problem.machine, level):
        left = [pool & domain if i in positions else pool for i, pool in enumerate(pools)]
        if all(left[i].bit_count() >= problem.demands[i].cpus for i in positions):
            yield from _choices(problem, rest, left)


def _domains(machine: Machine, level: Level) -> list[int]:
    levels = {"numa": machine.numa_nodes, "socket": machine.sockets, "l3": machine.l3s}
    return [domain.mask for domain in levels[level]] or [machine.online]


def _one_by_one(problem: Problem, pools: Sequence[int]) -> tuple[int, ...] | None:
    taken: list[int] = []
    for position, (demand, pool) in enumerate(zip(problem.demands, pools, strict=True)):
        left = pool & ~union(taken) & ~_kept_apart(problem, position, taken)
        found = take(problem, demand, whole_cores(problem.machine, demand, left))
        if found is None:
            return None
        taken.append(found)
    return tuple(taken)


def whole_cores(machine: Machine, demand: Demand, pool: int) -> int:
    """CPUs of the pool that the request may take; with ``full_cores`` those in cores that are left whole."""
    pool &= demand.allowed
    if not demand.request.full_cores:
        return pool
    return union(core.mask for core in machine.cores if core.mask & ~pool == 0)


def _kept_apart(problem: Problem, position: int, taken: Sequence[int]) -> int:
    """CPUs in domains that ``distinct`` keeps for the requests placed before."""
    names = [request.name for request in problem.requests]
    return union(
        domain
        for rule in problem.constraints
        if rule.distinct and position in rule.concerns(names)
        for domain in _domains(problem.machine, rule.level)
        for i in rule.concerns(names)
        if i < position and taken[i] & domain
    )


def take(problem: Problem, demand: Demand, pool: int) -> int | None:
    """One request's CPUs out of the pool, or ``None``."""
    scorer, request, machine = problem.prepared.scorer, demand.request, problem.machine
    answers = {
        answer: None
        for narrower in narrower_pools(machine, demand, pool)
        for answer in answers_from(machine, demand, narrower)
        if not any(violations(scorer, problem.free, [request], (), [answer]))
    }
    if len(answers) < 2:
        return next(iter(answers), None)
    return min(answers, key=lambda mask: tuple(scorer.metrics(problem.free, request, mask).values()))
