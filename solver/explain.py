"""Explains why nothing can be placed: a minimal clash of rules, with numbers, and the nearest request."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import Any, Literal, get_args

from models import Constraint, Infeasible, Nearest, Preference, Request, Rule, format_cpuset
from solver.counting import can_be_placed, placeable
from solver.problem import Problem

Oracle = Callable[[Sequence[Request], Sequence[Constraint]], bool | None]
"""Whether requests and constraints have an allocation, ``None`` if not known. May raise ``OutOfTime``."""

PREFERENCES: tuple[Preference, ...] = get_args(Preference)
OPTIONS = ("within", "numa_ids", "core_type", "numa_max", "full_cores")


class OutOfTime(Exception):  # noqa: N818 - it ends a search and is not an error
    """The explanation has used up its time."""


@dataclass(frozen=True)
class Requirement:
    """Something that can be left out of a claim: a request (option ``cpus``), one of its options, or a constraint.

    ``request`` and ``constraint`` are positions in the problem, -1 where it is not about one.
    """

    option: str
    request: int = -1
    constraint: int = -1


def explain(problem: Problem, feasible: Oracle) -> tuple[Infeasible, bool]:
    """The clash in a problem that has no allocation, and the nearest request that would be placed.

    Also whether there was time to make the clash minimal and to look for the nearest.
    """
    part, complete, nearest = _hopeless_alone(problem), True, None
    clash = list(_requirements(part))
    try:
        for rest in _smaller_clashes(part, clash, feasible):
            clash = rest
        clash = _without_idle_sizes(clash)
        concerned = {part.requests[item.request] for item in clash if item.request >= 0} or set(part.requests)
        nearest = _nearest(problem, [each for each in problem.requests if each in concerned], feasible)
    except OutOfTime:
        complete = False
    rules = tuple(_rule(part, item, len(problem.requests) > 1) for item in clash)
    return Infeasible(rules=rules, nearest=nearest), complete


def _hopeless_alone(problem: Problem) -> Problem:
    """The first request that could not be placed even alone, with the constraints on it; else all of them."""
    for position, demand in enumerate(problem.demands):
        if not can_be_placed(demand):
            name = problem.requests[position].name
            own = [_among(rule, {name}) for rule in problem.constraints if name in (rule.requests or {name})]
            kept = [rule for rule in own if rule is not None]
            return Problem.of(problem.prepared, problem.free, [problem.requests[position]], kept)
    return problem


def _smaller_clashes(problem: Problem, clash: list[Requirement], feasible: Oracle) -> Iterator[list[Requirement]]:
    """Clashes with one requirement less each: options and constraints go first, then whole requests."""
    options = [item for item in clash if item.option != "cpus"]
    requests = [[item] for item in clash if item.option == "cpus"]
    for dropped in [options, *([item] for item in options), *requests]:
        gone = {item.request for item in dropped if item.option == "cpus"}
        rest = [item for item in clash if item not in dropped and item.request not in gone]
        if len(rest) < len(clash) and feasible(*_with_only(problem, rest)) is False:
            clash = rest
            yield clash


def _without_idle_sizes(clash: list[Requirement]) -> list[Requirement]:
    """A size is named beside options of its request only where several requests clash."""
    options = [item for item in clash if item.option != "cpus"]
    alone = all(item.request == clash[0].request for item in clash)
    return options if alone and options else clash


def _requirements(problem: Problem) -> Iterator[Requirement]:
    for position, request in enumerate(problem.requests):
        yield Requirement("cpus", position)
        yield from (Requirement(option, position) for option in _options_of(request))
    for position, rule in enumerate(problem.constraints):
        yield Requirement("match" if rule.match else "distinct", constraint=position)


def _options_of(request: Request) -> list[str]:
    """Rules that the request sets."""
    given = [option for option in OPTIONS if getattr(request, option) != Request.model_fields[option].default]
    return given + [f"strict {preference}" for preference in PREFERENCES if request.is_strict(preference)]


def _with_only(problem: Problem, requirements: Collection[Requirement]) -> tuple[list[Request], list[Constraint]]:
    kept: dict[int, set[str]] = {item.request: set() for item in requirements if item.option == "cpus"}
    for item in requirements:
        if item.request in kept:
            kept[item.request].add(item.option)
    requests = [
        _without(problem.requests[position], set(_options_of(problem.requests[position])) - options)
        for position, options in kept.items()
    ]
    names = {request.name for request in requests}
    rules = [_among(problem.constraints[item.constraint], names) for item in requirements if item.constraint >= 0]
    return requests, [rule for rule in rules if rule is not None]


def _among(constraint: Constraint, names: set[str]) -> Constraint | None:
    """The constraint on those of its requests that are left."""
    if not constraint.requests:
        return constraint
    left = tuple(name for name in constraint.requests if name in names)
    says_something = len(left) > (0 if constraint.match else 1)
    return constraint.model_copy(update={"requests": left}) if says_something else None


def _without(request: Request, options: Iterable[str]) -> Request:
    update: dict[str, Any] = {}
    strict = frozenset(preference for preference in PREFERENCES if request.is_strict(preference))
    for option in options:
        if option.startswith("strict "):
            strict -= {option.removeprefix("strict ")}
        else:
            update[option] = Request.model_fields[option].default
    return request.model_copy(update=update | {"strict": strict})


def _rule(problem: Problem, item: Requirement, named: bool) -> Rule:
    if item.constraint >= 0:
        return _rule_between(problem, item.option, problem.constraints[item.constraint])
    request = problem.requests[item.request]
    sizes = _sizes_under(problem, request, item.option)
    most = max(sizes.bit_length() - 1, 0)
    where = _where(request, item.option)
    name = f"{request.name}: " if named else ""
    text = f"{name}{_count(request.cpus, 'CPU')}{where} requested, {_count(most, 'CPU')}{where} free"
    if request.cpus <= most:
        near = [size for size in (_below(sizes, request.cpus), _above(sizes, request.cpus)) if size]
        possible = "" if sizes >> request.cpus & 1 else f", possible: {' and '.join(map(str, near))}"
        text += possible
    return Rule(name=item.option, request=request.name, text=text, asked=request.cpus, available=most)


def _sizes_under(problem: Problem, request: Request, option: str) -> int:
    """Sizes that could be placed if the request had this option only; all that are free without any."""
    if option == "cpus":
        return (2 << problem.free.bit_count()) - 2
    alone = _without(request, set(_options_of(request)) - {option})
    return placeable(Problem.of(problem.prepared, problem.free, [alone]).demands[0])


def _rule_between(problem: Problem, option: str, constraint: Constraint) -> Rule:
    """The rule of a constraint: how many CPUs its requests ask for, and what one domain, or all, have free."""
    word = {"numa": "NUMA node", "socket": "socket", "l3": "L3"}[constraint.level]
    names = [request.name for request in problem.requests]
    asked = sum(problem.requests[i].cpus for i in constraint.concerns(names))
    who = ", ".join(constraint.requests) or "all requests"
    machine = problem.machine
    domains = {"numa": machine.numa_nodes, "socket": machine.sockets, "l3": machine.l3s}[constraint.level]
    free = [(domain.mask & problem.free).bit_count() for domain in domains]
    if constraint.match:
        most = max(free, default=0)
        text = f"{who}: {_count(asked, 'CPU')} in one {word} requested, {_count(most, 'CPU')} in one {word} free"
        return Rule(name=option, request="", text=text, asked=asked, available=most)
    count = sum(1 for each in free if each)
    text = f"{who}: {word}s of their own requested, {_count(count, word)} with free CPUs"
    return Rule(name=option, request="", text=text, asked=len(constraint.concerns(names)), available=count)


def _where(request: Request, option: str) -> str:
    """The place where a rule wants the CPUs, after the word CPUs."""
    places: dict[str, Callable[[], str]] = {
        "within": lambda: f"within {format_cpuset(request.within or ())}",
        "numa_ids": lambda: f"in {_counted_node(request.numa_ids or ())}",
        "core_type": lambda: f"in {request.core_type} cores",
        "numa_max": lambda: f"in at most {_count(request.numa_max or 1, 'NUMA node')}",
        "full_cores": lambda: "in whole cores",
        "strict policy": lambda: "in even shares",
        "strict numa_min": lambda: f"in {_at_least(request.numa_min or 1)}",
        "strict near": lambda: f"near {request.near}",
        "strict align_by_socket": lambda: "in one socket",
        "strict prefer_l3": lambda: "in one L3",
        "strict threads": lambda: "on cores of their own",
    }
    return f" {places[option]()}" if option in places else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _at_least(nodes: int | Literal["all"]) -> str:
    return "all NUMA nodes" if nodes == "all" else f"at least {_count(nodes, 'NUMA node')}"


def _counted_node(ids: Collection[int]) -> str:
    return f"NUMA node{'' if len(ids) == 1 else 's'} {format_cpuset(ids)}"


def _nearest(problem: Problem, concerned: Iterable[Request], feasible: Oracle) -> Nearest | None:
    """The largest smaller size with the same options, else the smallest larger one, else one requirement less."""
    concerned = list(concerned)
    for pick in (_smaller, _larger):
        by_change = merge(*(_changes(request, pick(problem, request)) for request in concerned), key=itemgetter(0))
        for _, request, size in by_change:
            changed = request.model_copy(update={"cpus": size})
            if feasible(_replaced(problem, request, changed), problem.constraints):
                return Nearest(request=request.name, option="cpus", asked=str(request.cpus), instead=str(size))
    for request in concerned:
        for option in _options_of(request):
            if feasible(_replaced(problem, request, _without(request, [option])), problem.constraints):
                return Nearest(request=request.name, option=option, asked="set", instead="left out")
    for constraint in problem.constraints:
        if feasible(problem.requests, [rule for rule in problem.constraints if rule is not constraint]):
            kind = "match" if constraint.match else "distinct"
            return Nearest(request="", option=kind, asked=constraint.level, instead="left out")
    return None


def _changes(request: Request, sizes: Iterable[int]) -> Iterator[tuple[int, Request, int]]:
    return ((abs(size - request.cpus), request, size) for size in sizes)


def _smaller(problem: Problem, request: Request) -> Iterator[int]:
    sizes = _sizes(problem, request)
    size = request.cpus
    while size := _below(sizes, size):
        yield size


def _larger(problem: Problem, request: Request) -> Iterator[int]:
    sizes = _sizes(problem, request)
    size = request.cpus
    while size := _above(sizes, size):
        yield size


def _sizes(problem: Problem, request: Request) -> int:
    return placeable(problem.demands[problem.requests.index(request)])


def _below(sizes: int, size: int) -> int:
    """The largest smaller size of the set, or 0."""
    return max((sizes & (1 << size) - 1).bit_length() - 1, 0)


def _above(sizes: int, size: int) -> int:
    """The smallest larger size of the set, or 0."""
    rest = sizes >> size + 1 << size + 1
    return (rest & -rest).bit_length() - 1 if rest else 0


def _replaced(problem: Problem, request: Request, changed: Request) -> list[Request]:
    return [changed if each == request else each for each in problem.requests]
