"""Why nothing can be placed: the clashing rules with their numbers, minimal, and what would be placed instead."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import Any, Literal, get_args

from models import Constraint, Infeasible, Nearest, Preference, Request, Rule, format_cpuset
from solver.counting import placeable
from solver.problem import Problem, pose

Oracle = Callable[[Sequence[Request], Sequence[Constraint]], bool | None]
"""Whether requests and constraints have an allocation; ``None`` when that was not found out in time."""

PREFERENCES: tuple[Preference, ...] = get_args(Preference)
OPTIONS = ("within", "numa_ids", "core_type", "numa_max", "full_cores")


@dataclass(frozen=True)
class Wish:
    """Something that was asked for and that can be left out: a request, one of its options, a constraint."""

    option: str
    request: Request | None = None
    constraint: Constraint | None = None


def explain(problem: Problem, feasible: Oracle) -> Infeasible:
    """The clash in a problem that has no allocation, and the nearest request that would be placed."""
    clash = _minimal_clash(problem, feasible)
    rules = tuple(_rule(problem, wish) for wish in clash)
    concerned = list(dict.fromkeys(wish.request for wish in clash if wish.request is not None))
    return Infeasible(rules=rules, nearest=_nearest(problem, concerned or problem.requests, feasible))


def _minimal_clash(problem: Problem, feasible: Oracle) -> list[Wish]:
    """Wishes that cannot be met together, though without any one of them the others can.

    Options are left out first, then whole requests. A size is named beside options of its request only where
    several requests clash.
    """
    kept = list(_wishes(problem))
    for wish in sorted(kept, key=lambda wish: wish.option == "cpus"):
        same = wish.request if wish.option == "cpus" else None
        rest = [other for other in kept if other is not wish and (same is None or other.request != same)]
        if feasible(*_with_only(problem, rest)) is False:
            kept = rest
    options = [wish for wish in kept if wish.option != "cpus"]
    alone = all(wish.request == kept[0].request for wish in kept)
    return options if alone and options else kept


def _wishes(problem: Problem) -> Iterator[Wish]:
    for request in problem.requests:
        yield Wish("cpus", request)
        yield from (Wish(option, request) for option in _options_of(request))
    for constraint in problem.constraints:
        yield Wish("match" if constraint.match else "distinct", constraint=constraint)


def _options_of(request: Request) -> list[str]:
    """Rules that the request sets."""
    defaults = {name: field.default for name, field in Request.model_fields.items()}
    given = [option for option in OPTIONS if getattr(request, option) != defaults[option]]
    return given + [f"strict {preference}" for preference in PREFERENCES if request.is_strict(preference)]


def _with_only(problem: Problem, wishes: Iterable[Wish]) -> tuple[list[Request], list[Constraint]]:
    wishes = list(wishes)
    requests = [
        _without(request, set(_options_of(request)) - {wish.option for wish in wishes if wish.request == request})
        for request in problem.requests
        if Wish("cpus", request) in wishes
    ]
    names = {request.name for request in requests}
    constraints = [
        narrowed
        for wish in wishes
        if wish.constraint is not None and (narrowed := _among(wish.constraint, names)) is not None
    ]
    return requests, constraints


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


def _rule(problem: Problem, wish: Wish) -> Rule:
    if wish.constraint is not None:
        return _rule_between(problem, wish.option, wish.constraint)
    request = wish.request
    assert request is not None
    alone = _without(request, set(_options_of(request)) - {wish.option})
    sizes = placeable(pose(problem.prepared, problem.free, [alone]).demands[0])
    most = max(sizes.bit_length() - 1, 0)
    where = _where(request, wish.option)
    name = f"{request.name}: " if len(problem.requests) > 1 else ""
    text = f"{name}{_count(request.cpus, 'CPU')}{where} asked, {_count(most, 'CPU')}{where} free"
    if request.cpus <= most:
        near = [size for size in (_below(sizes, request.cpus), _above(sizes, request.cpus)) if size]
        possible = "" if sizes >> request.cpus & 1 else f", possible: {' and '.join(map(str, near))}"
        text += possible
    return Rule(name=wish.option, request=request.name, text=text, asked=request.cpus, available=most)


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
        text = f"{who}: {_count(asked, 'CPU')} in one {word} asked, {_count(most, 'CPU')} in one {word} free"
        return Rule(name=option, request="", text=text, asked=asked, available=most)
    count = sum(1 for each in free if each)
    text = f"{who}: {word}s of their own asked, {_count(count, word)} with free CPUs"
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
    """The largest smaller size with the same options, else the smallest larger one, else one wish less."""
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
