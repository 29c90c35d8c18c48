"""Checks every answer before it leaves: sizes, ownership, rules and metrics, by code that knows no engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from models import Constraint, DefectError, Metrics, Preference, Request, format_cpuset, from_mask, to_mask
from solver.score import Scorer


def verify(
    scorer: Scorer,
    free: int,
    requests: Sequence[Request],
    constraints: Sequence[Constraint],
    taken: Sequence[int],
    claimed: Metrics | None = None,
) -> Metrics:
    """The metrics of ``taken``, a bit mask per request.

    Raises ``DefectError`` unless it meets every rule and has the metrics that are claimed of it, if any are.
    """
    if len(taken) != len(requests):
        raise DefectError(f"{len(requests)} requests were given {len(taken)} CPU sets")
    broken = list(violations(scorer, free, requests, constraints, taken))
    found = {} if broken else scorer.joint(free, requests, taken)
    if not broken and claimed not in (None, found):
        broken.append(f"metrics {claimed} are really {found}")
    if broken:
        raise DefectError("the answer breaks its own rules: " + "; ".join(broken))
    return found


def violations(
    scorer: Scorer, free: int, requests: Sequence[Request], constraints: Sequence[Constraint], taken: Sequence[int]
) -> Iterator[str]:
    """What is wrong with the allocations, one sentence each; nothing when all rules are met."""
    for request, mask in zip(requests, taken, strict=True):
        view = _View(scorer, free, request, mask)
        yield from (f"{request.name}: {text}" for rule in RULES if (text := rule(view)))
    for (a, one), (b, other) in combinations(zip(requests, taken, strict=True), 2):
        if one & other:
            yield f"{a.name} and {b.name} share CPUs"
    for constraint in constraints:
        chosen = [taken[i] for i in constraint.concerns(request.name for request in requests)]
        if not _holds(scorer, constraint, chosen):
            yield f"{constraint.model_dump(exclude_defaults=True)} does not hold"


@dataclass(frozen=True)
class _View:
    scorer: Scorer
    free: int
    request: Request
    taken: int

    def span(self, level: Sequence[int]) -> int:
        return sum(1 for mask in level if mask & self.taken)

    def outside(self, allowed: int, what: str) -> str:
        bad = self.taken & ~allowed
        return f"CPUs {format_cpuset(from_mask(bad))} are not {what}" if bad else ""


def _size(view: _View) -> str:
    size = view.taken.bit_count()
    return "" if size == view.request.cpus else f"{size} CPUs instead of {view.request.cpus}"


def _free(view: _View) -> str:
    return view.outside(view.free & view.scorer.allocatable, "free")


def _within(view: _View) -> str:
    within = view.request.within
    return "" if within is None else view.outside(to_mask(within), "in within")


def _numa_ids(view: _View) -> str:
    named = view.request.numa_ids
    if named is None:
        return ""
    cpus = view.scorer.machine.topology.cpus
    return view.outside(to_mask(cpu.cpu for cpu in cpus if cpu.numa in named), "in the NUMA nodes named")


def _numa_max(view: _View) -> str:
    most, span = view.request.numa_max, view.span(view.scorer.numa_nodes)
    return "" if most is None or span <= most else f"{span} NUMA nodes instead of at most {most}"


def _core_type(view: _View) -> str:
    wanted = view.request.core_type
    if wanted == "any":
        return ""
    cpus = view.scorer.machine.topology.cpus
    return view.outside(to_mask(cpu.cpu for cpu in cpus if cpu.core_type == wanted), f"of core type {wanted}")


def _full_cores(view: _View) -> str:
    if not view.request.full_cores:
        return ""
    whole = sum(core for core in view.scorer.cores if core & ~view.taken == 0)
    return view.outside(whole, "in whole cores")


STRICT: dict[Preference, tuple[str, int]] = {
    "policy": ("unevenness", 0),
    "numa_min": ("floor_shortfall", 0),
    "near": ("outside_near", 0),
    "align_by_socket": ("sockets", 1),
    "prefer_l3": ("l3_caches", 1),
    "threads": ("doubled_threads", 0),
}


def _strict(view: _View) -> str:
    rules = [rule for preference, rule in STRICT.items() if view.request.is_strict(preference)]
    metrics = view.scorer.metrics(view.free, view.request, view.taken) if rules else {}
    return ", ".join(f"{name} is {metrics[name]}, above {most}" for name, most in rules if metrics[name] > most)


RULES: tuple[Callable[[_View], str], ...] = (
    _size,
    _free,
    _within,
    _numa_ids,
    _numa_max,
    _core_type,
    _full_cores,
    _strict,
)


def _holds(scorer: Scorer, constraint: Constraint, taken: Sequence[int]) -> bool:
    domains = {"numa": scorer.numa_nodes, "socket": scorer.sockets, "l3": scorer.l3s}[constraint.level]
    users = [[i for i, mask in enumerate(taken) if mask & domain] for domain in domains]
    if constraint.match:
        return sum(1 for used in users if used) <= 1
    return all(len(used) <= 1 for used in users)
