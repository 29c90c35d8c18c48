"""Small random machines of every kind, and requests for them, drawn from a seed."""

from dataclasses import dataclass
from random import Random
from typing import Any, get_args

from pydantic import ValidationError

from models import Constraint, Level, Preference, Request, Topology
from tests.solver.brute_force import can_be_allowed

KINDS = (
    "nested",
    "socket over NUMA",
    "L3 over NUMA",
    "hybrid",
    "no L3",
    "partly no L3",
    "no NUMA",
    "gaps",
    "types by node",
    "outer L3",
)
PREFERENCES = get_args(Preference)


@dataclass(frozen=True)
class Case:
    """A question to the solver: a machine, its free CPUs, requests and the rules between them."""

    seed: int
    kind: str
    topology: Topology
    free: frozenset[int]
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()


def single_case(seed: int) -> Case:
    """One request on a machine of at most 12 CPUs."""
    rng, kind = Random(seed), KINDS[seed % len(KINDS)]
    topology = small_topology(rng, kind, most_cpus=rng.choice([6, 8, 10, 12]))
    free = some_free(rng, topology)
    return Case(seed, kind, topology, free, (some_request(rng, topology, free),))


def joint_case(seed: int) -> Case:
    """Two or three requests, and often rules between them, on a machine of at most 8 CPUs."""
    rng, kind = Random(f"joint {seed}"), KINDS[seed % len(KINDS)]
    topology = small_topology(rng, kind, most_cpus=8)
    free = some_free(rng, topology)
    names = ("first", "second", "third")[: rng.choice([2, 2, 3])]
    most = max(1, (len(free) - 1) // len(names))
    requests = tuple(_placeable_request(rng, topology, free, name, most) for name in names)
    constraints = tuple(_constraint(rng, names) for _ in range(rng.choice([0, 0, 1, 1, 2])))
    return Case(seed, kind, topology, free, requests, constraints)


def _placeable_request(rng: Random, topology: Topology, free: frozenset[int], name: str, most: int) -> Request:
    """A request that mostly could be placed alone, lest hardly any could be placed together."""
    drawn = (some_request(rng, topology, free, name, most) for _ in range(3))
    return next(
        (request for request in drawn if can_be_allowed(topology, free, [request])), Request(name=name, cpus=1)
    )


def small_topology(rng: Random, kind: str, most_cpus: int = 10) -> Topology:
    """A machine of at most so many CPUs, with shuffled CPU numbers and ids that mean nothing."""
    cores = _cores(rng, kind, most_cpus)
    numbers = _numbers(rng, sum(size for size, _ in cores), kind)
    cpus = [
        {"cpu": numbers.pop(), "core": core, **where}
        for core, (size, where) in enumerate(cores)
        for _ in range(size)
    ]
    nodes = {cpu["numa"] for cpu in cpus} - {None}
    if nodes and rng.random() < 0.1:
        nodes.add(max(nodes) + 1)
    document = {
        "cpus": cpus,
        "numa_nodes": _numa_nodes(rng, sorted(nodes)),
        "devices": [{"name": "nic", "local_cpus": [c["cpu"] for c in cpus if rng.random() < 0.6]}],
        "reserved": [c["cpu"] for c in cpus if rng.random() < 0.3] if rng.random() < 0.2 else [],
    }
    return Topology.model_validate(document)


def _cores(rng: Random, kind: str, most_cpus: int) -> list[tuple[int, dict[str, Any]]]:
    """Sizes of the cores and where they lie."""
    nodes, l3s = rng.randint(1, 4), rng.randint(1, 2)
    sizes = {"hybrid": [1, 1, 1, 2, 2, 3], "gaps": [1, 2, 2, 3, 4], "types by node": [1, 1, 2]}.get(kind) or [
        rng.choice([1, 2, 2, 2])
    ]
    cores: list[tuple[int, dict[str, Any]]] = []
    count = 0
    while count < most_cpus:
        numa, part = rng.randrange(nodes), rng.randrange(l3s)
        size = min(rng.choice(sizes), most_cpus - count)
        count += size
        where: dict[str, Any] = {"numa": numa, "socket": numa // 2, "l3": numa * 2 + part}
        cores.append((size, where | _oddities(rng, kind, numa, part, size)))
    return cores


def _oddities(rng: Random, kind: str, numa: int, part: int, size: int) -> dict[str, Any]:
    match kind:
        case "socket over NUMA":
            return {"socket": rng.randrange(2)}
        case "L3 over NUMA":
            return {"l3": part}
        case "hybrid":
            return {"core_type": "performance" if size > 1 else "efficiency", "l3": numa}
        case "types by node":
            return {"core_type": "efficiency" if numa else "performance", "socket": 0, "l3": min(numa, 1)}
        case "outer L3":
            return {"socket": 0, "l3": (numa + 1) // 2}
        case "no L3":
            return {"l3": None}
        case "partly no L3":
            return {"l3": None if part else numa}
        case "no NUMA":
            return {"numa": None}
    return {}


def _numbers(rng: Random, count: int, kind: str) -> list[int]:
    numbers = rng.sample(range(3 * count), count) if kind == "gaps" else list(range(count))
    rng.shuffle(numbers)
    return numbers


def _numa_nodes(rng: Random, ids: list[int]) -> list[dict[str, Any]]:
    """No distances, symmetric ones, or ones that differ by direction."""
    kind = rng.choice(["none", "symmetric", "symmetric", "directed"])
    if kind == "none":
        return [{"id": i} for i in ids]
    far = {(a, b): rng.choice([12, 21, 21, 32]) for a in ids for b in ids}
    if kind == "symmetric":
        far = {(a, b): far[min(a, b), max(a, b)] for a, b in far}
    return [{"id": a, "distances": {b: 10 if a == b else far[a, b] for b in ids}} for a in ids]


def some_free(rng: Random, topology: Topology) -> frozenset[int]:
    """All allocatable CPUs, or a random part of them."""
    share = rng.choice([1.0, 1.0, 0.9, 0.7])
    return frozenset(cpu for cpu in sorted(topology.allocatable) if rng.random() < share)


def some_request(
    rng: Random, topology: Topology, free: frozenset[int], name: str = "cpus", most: int = 7
) -> Request:
    """A request with random options that do not contradict each other."""
    while True:
        size = {"name": name, "cpus": rng.randint(1, max(1, min(len(free), most)))}
        try:
            return Request.model_validate(size | _options(rng, topology, free))
        except ValidationError:
            continue


def _options(rng: Random, topology: Topology, free: frozenset[int]) -> dict[str, Any]:
    hybrid = any(cpu.core_type != "standard" for cpu in topology.cpus)
    nodes = [node.id for node in topology.numa_nodes]
    places = [device.name for device in topology.devices] + [str(min(topology.online))]
    return {
        "policy": rng.choice(["packed", "distributed"]),
        "full_cores": rng.random() < 0.2,
        "threads": "spread" if rng.random() < 0.2 else "pack",
        "prefer_l3": rng.random() < 0.25,
        "align_by_socket": rng.random() < 0.25,
        "numa_min": rng.choice([None, None, None, 1, 2, 3, "all"]),
        "numa_max": rng.choice([None] * 6 + [1, 2, 3]),
        "numa_ids": _most(rng, nodes) if nodes and rng.random() < 0.15 else None,
        "fit": rng.choice(["tight", "tight", "loose"]),
        "core_type": rng.choice(["any", "any", "performance", "efficiency"]) if hybrid else "any",
        "near": rng.choice([None] * 3 + places),
        "within": _most(rng, sorted(free)) if rng.random() < 0.15 else None,
        "strict": rng.choice([False, False, False, True, rng.sample(PREFERENCES, 1), rng.sample(PREFERENCES, 2)]),
    }


def _most(rng: Random, items: list[int]) -> list[int]:
    return [item for item in items if rng.random() < 0.8]


def _constraint(rng: Random, names: tuple[str, ...]) -> Constraint:
    kind, level = rng.choice(["match", "distinct"]), rng.choice(get_args(Level))
    concerned = rng.choice([(), (), rng.sample(names, 2)])
    return Constraint.model_validate({kind: level, "requests": tuple(concerned)})
