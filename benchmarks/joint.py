"""Joint: several requests solved together against one by one, and against the greedy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from benchmarks.instances import instances, prepared
from benchmarks.spread import Excess, excess
from benchmarks.timing import quantile
from models import Metrics, Request, Result, from_mask, to_mask
from solver.engine import solve
from solver.methods import EngineChoice

KINDS: dict[str, dict[str, object]] = {
    "anywhere": {},
    "spread out": {"policy": "distributed"},
    "one NUMA node each": {"numa_max": 1},
    "one L3 each, whole cores": {"prefer_l3": True, "strict": frozenset(["prefer_l3"]), "full_cores": True},
}
"""Options of all requests of a batch. The last two are rules: what comes first may leave no room for the rest."""

WAYS = ("in order", "largest first", "greedy")
MACHINES = (
    "1s4n-48c96t-epyc-9454p-nps4",
    "2s2n-64c128t-epyc-7543-nps1",
    "2s4n-80c160t-xeon-8380-snc2",
    "2s8n-128c256t-epyc-7763-nps4",
)


@dataclass(frozen=True)
class Batch:
    """Requests of one kind on one machine with these CPUs free."""

    machine: str
    kind: str
    free: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class JudgedBatch:
    """Metrics of the joint answer and of each other way (``None``: not all requests were placed)."""

    batch: Batch
    proven: bool
    milliseconds: float
    joint: Metrics | None
    others: dict[str, Metrics | None]


@dataclass(frozen=True)
class JointRow:
    """All batches of a kind against one way. Shares: ``unplaced`` of the batches that are placed jointly;
    ``worse``, ``better`` (than a joint answer without proof) and ``metrics`` of those that both place.
    """

    kind: str
    way: str
    batches: int
    placed: int
    proven: float
    median_ms: float
    p95_ms: float
    unplaced: float
    worse: float
    better: float
    metrics: dict[str, Excess]


def batches(machine: str, count: int, seed: int = 0) -> Iterator[Batch]:
    """So many batches of each kind: 2 to 4 requests that ask for half to nine tenths of what is free."""
    machine_cores = [core.mask for core in prepared(machine).machine.cores]
    threads = max(mask.bit_count() for mask in machine_cores)
    for kind, options in KINDS.items():
        for instance in instances(machine, count, seed):
            rng = Random(f"{machine}/{seed}/{instance.seed}/{kind}")
            room = max(mask.bit_count() for mask in _rooms(machine, instance.free, options))
            sizes = _sizes(rng, instance.free.bit_count(), room)
            if options.get("full_cores"):
                sizes = [-(-size // threads) * threads for size in sizes]
            names = (f"r{number}" for number in range(len(sizes)))
            requests = (Request(name=name, cpus=cpus, **options) for name, cpus in zip(names, sizes, strict=True))  # type: ignore[arg-type]
            yield Batch(machine, kind, instance.free, tuple(requests))


def _rooms(machine: str, free: int, options: dict[str, object]) -> Iterator[int]:
    """Free CPUs of each domain that a request must keep within."""
    layout = prepared(machine).machine
    domains = layout.numa_nodes if "numa_max" in options else layout.l3s if "strict" in options else ()
    return (mask & free for mask in ([domain.mask for domain in domains] or [layout.online]))


def _sizes(rng: Random, free: int, room: int) -> list[int]:
    """Sizes that add up to half to nine tenths of the free CPUs, none above the room."""
    shares = [rng.uniform(0.3, 1.0) for _ in range(rng.randint(2, 4))]
    wanted = rng.uniform(0.5, 0.9) * free / sum(shares)
    return [min(max(1, round(share * wanted)), room) for share in shares]


def judge(batch: Batch, time_limit: float) -> JudgedBatch:
    """The batch together, and in every other way."""
    result = _solve(batch, batch.free, batch.requests, "auto", time_limit)
    order = range(len(batch.requests))
    by_size = sorted(order, key=lambda i: -batch.requests[i].cpus)
    greedy = _solve(batch, batch.free, batch.requests, "greedy", time_limit)
    others = {
        "in order": _one_by_one(batch, order, time_limit),
        "largest first": _one_by_one(batch, by_size, time_limit),
        "greedy": greedy.metrics if greedy.allocations else None,
    }
    spent = result.build_ms + result.solve_ms
    proven = result.status in ("optimal", "infeasible")
    return JudgedBatch(batch, proven, spent, result.metrics if result.allocations else None, others)


def _one_by_one(batch: Batch, order: Iterable[int], time_limit: float) -> Metrics | None:
    """Each request at its own optimum, in this order, out of what the ones before have left."""
    taken: dict[int, int] = {}
    free = batch.free
    for i in order:
        result = _solve(batch, free, [batch.requests[i]], "auto", time_limit)
        if not result.allocations:
            return None
        taken[i] = to_mask(result.allocations[0].cpuset)
        free &= ~taken[i]
    masks = [taken[i] for i in range(len(batch.requests))]
    return prepared(batch.machine).scorer.joint(batch.free, batch.requests, masks)


def _solve(
    batch: Batch, free: int, requests: Sequence[Request], engine: EngineChoice, time_limit: float
) -> Result:
    machine = prepared(batch.machine)
    return solve(machine, requests, free=from_mask(free), engine=engine, time_limit=time_limit)


def summary(judged: Iterable[JudgedBatch]) -> list[JointRow]:
    """A row per kind and way."""
    groups: dict[str, list[JudgedBatch]] = {}
    for one in judged:
        groups.setdefault(one.batch.kind, []).append(one)
    return [_row(kind, way, groups[kind]) for kind in KINDS if kind in groups for way in WAYS]


def _row(kind: str, way: str, group: Sequence[JudgedBatch]) -> JointRow:
    placed = [one for one in group if one.joint is not None]
    pairs = [(one.joint, other) for one in placed if one.joint and (other := one.others[way]) is not None]
    values = [(tuple(joint.values()), tuple(other.values())) for joint, other in pairs]
    times = [one.milliseconds for one in group]
    names = pairs[0][0] if pairs else {}
    return JointRow(
        kind=kind,
        way=way,
        batches=len(group),
        placed=len(placed),
        proven=sum(one.proven for one in group) / len(group),
        median_ms=median(times),
        p95_ms=quantile(times, 0.95),
        unplaced=1 - len(pairs) / max(1, len(placed)),
        worse=sum(other > joint for joint, other in values) / max(1, len(values)),
        better=sum(other < joint for joint, other in values) / max(1, len(values)),
        metrics={name: excess([other[name] - joint[name] for joint, other in pairs]) for name in names},
    )
