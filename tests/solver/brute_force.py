"""The right answer on small machines: every choice of CPUs, judged by verify's rules and the scorer."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from models import Constraint, Metrics, Request, Topology, to_mask
from solver.score import ORDER, Scorer, slots
from solver.verify import violations
from topologies.graph import Machine


def brute_force(
    topology: Topology, free: frozenset[int], requests: Sequence[Request], constraints: Sequence[Constraint] = ()
) -> tuple[int, ...] | None:
    """The best allocations by the metrics and the tie rule, or ``None`` when nothing is allowed."""
    scorer, mask = Scorer(Machine(topology)), to_mask(free)

    def key(taken: tuple[int, ...]) -> tuple[object, ...]:
        metrics = tuple(scorer.joint(mask, requests, taken).values())
        return (metrics, *(scorer.tie_key(each) for each in taken))

    return min(_least_own_sums(scorer, mask, requests, constraints), key=key, default=None)


def can_be_allowed(
    topology: Topology, free: frozenset[int], requests: Sequence[Request], constraints: Sequence[Constraint] = ()
) -> bool:
    """Whether any choice of CPUs meets all rules."""
    scorer, mask = Scorer(Machine(topology)), to_mask(free)
    pools = [_allowed(scorer, mask, request) for request in requests]
    return any(True for _ in _together(scorer, mask, requests, constraints, pools))


def _least_own_sums(
    scorer: Scorer, free: int, requests: Sequence[Request], constraints: Sequence[Constraint]
) -> list[tuple[int, ...]]:
    """The allowed choices that are best by the slots that add up; computed once per request and CPU set."""
    pools = [_allowed(scorer, free, request) for request in requests]
    columns = [
        slot for slot, each in enumerate(ORDER) if each.scope != "union" and any(slots(r)[slot] for r in requests)
    ]
    own = [
        {taken: _own(scorer.metrics(free, request, taken), request, columns) for taken in pool}
        for request, pool in zip(requests, pools, strict=True)
    ]
    best: list[tuple[int, ...]] = []
    least: tuple[int, ...] | None = None
    for taken in _together(scorer, free, requests, constraints, pools):
        sums = tuple(map(sum, zip(*(known[mask] for known, mask in zip(own, taken, strict=True)), strict=True)))
        if least is None or sums < least:
            best, least = [], sums
        if sums == least:
            best.append(taken)
    return best


def _own(metrics: Metrics, request: Request, columns: Sequence[int]) -> tuple[int, ...]:
    names = slots(request)
    return tuple(metrics.get(names[slot] or "", 0) for slot in columns)


def _allowed(scorer: Scorer, free: int, request: Request) -> list[int]:
    """Every CPU set that keeps the request's own rules."""
    cpus = [cpu for cpu in range(free.bit_length()) if free >> cpu & 1]
    masks = map(to_mask, combinations(cpus, request.cpus))
    return [mask for mask in masks if not any(violations(scorer, free, [request], (), [mask]))]


def _together(
    scorer: Scorer,
    free: int,
    requests: Sequence[Request],
    constraints: Sequence[Constraint],
    pools: Sequence[Sequence[int]],
) -> Iterator[tuple[int, ...]]:
    """The choices that share no CPU and keep the rules between requests."""
    for taken in _disjoint(pools, 0):
        if not constraints or not any(violations(scorer, free, requests, constraints, taken)):
            yield taken


def _disjoint(pools: Sequence[Sequence[int]], others: int) -> Iterator[tuple[int, ...]]:
    if not pools:
        yield ()
        return
    for mask in pools[0]:
        if not mask & others:
            yield from ((mask, *rest) for rest in _disjoint(pools[1:], others | mask))
