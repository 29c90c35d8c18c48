"""Small random machines of every kind, and requests for them, drawn from a seed."""

from random import Random
from typing import Any

from models import Request, Topology, from_mask

KINDS = ("nested", "socket over NUMA", "L3 over NUMA", "hybrid", "no L3", "partly no L3", "no NUMA", "gaps")


def small_topology(rng: Random, kind: str, most_cpus: int = 10) -> Topology:
    """A machine of at most so many CPUs, with shuffled CPU numbers and ids that mean nothing."""
    cores = _cores(rng, kind, most_cpus)
    numbers = _numbers(rng, sum(len(siblings) for siblings, _ in cores), kind)
    cpus = [
        {"cpu": numbers.pop(), "core": core, **where}
        for core, (siblings, where) in enumerate(cores)
        for _ in siblings
    ]
    nodes = sorted({cpu["numa"] for cpu in cpus} - {None})
    return Topology.model_validate(
        {
            "cpus": cpus,
            "numa_nodes": _numa_nodes(rng, nodes),
            "devices": [{"name": "nic", "local_cpus": [c["cpu"] for c in cpus if rng.random() < 0.5]}],
        }
    )


def _cores(rng: Random, kind: str, most_cpus: int) -> list[tuple[range, dict[str, Any]]]:
    nodes, l3s = rng.randint(1, 4), rng.randint(1, 2)
    cores: list[tuple[range, dict[str, Any]]] = []
    count = 0
    while count < most_cpus:
        numa, part = rng.randrange(nodes), rng.randrange(l3s)
        size = rng.choice([1, 2, 2, 2, 3]) if kind in ("hybrid", "gaps") else min(2, most_cpus)
        if count + size > most_cpus:
            break
        count += size
        where: dict[str, Any] = {"numa": numa, "socket": numa // 2, "l3": numa * 2 + part}
        where |= _oddities(rng, kind, numa, part, size)
        cores.append((range(size), where))
    return cores


def _oddities(rng: Random, kind: str, numa: int, part: int, size: int) -> dict[str, Any]:
    match kind:
        case "socket over NUMA":
            return {"socket": rng.randrange(2)}
        case "L3 over NUMA":
            return {"l3": part}
        case "hybrid":
            return {"core_type": "performance" if size > 1 else "efficiency", "l3": numa}
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
    if rng.random() < 0.3:
        return [{"id": i} for i in ids]
    far = {frozenset((a, b)): rng.choice([12, 21, 21, 32]) for a in ids for b in ids if a < b}
    return [{"id": a, "distances": {b: 10 if a == b else far[frozenset((a, b))] for b in ids}} for a in ids]


def some_free(rng: Random, topology: Topology) -> frozenset[int]:
    """All CPUs, or a random part of them."""
    share = rng.choice([1.0, 0.9, 0.7, 0.5])
    return frozenset(cpu for cpu in topology.online if rng.random() < share)


def some_request(rng: Random, topology: Topology, free: frozenset[int], name: str = "cpus") -> Request:
    """A request with random options that do not contradict each other."""
    options: dict[str, Any] = {"name": name, "cpus": rng.randint(1, max(1, min(len(free), 6)))}
    options["policy"] = rng.choice(["packed", "distributed"])
    for option in ("prefer_l3", "align_by_socket"):
        options[option] = rng.random() < 0.25
    options |= rng.choice([{}, {}, {"full_cores": True}, {"threads": "spread"}])
    options |= rng.choice([{}, {}, {"numa_min": rng.randint(1, 3)}, {"numa_min": "all"}])
    options |= rng.choice([{}, {}, {}, {"near": "nic"}, {"near": str(min(topology.online))}])
    options |= rng.choice([{}, {}, {"fit": "loose"}])
    options |= rng.choice([{}] * 5 + [{"numa_max": rng.randint(3, 4)}, {"numa_max": 1}])
    options |= rng.choice([{}] * 6 + [{"core_type": "performance"}, {"within": sorted(free)}])
    options |= rng.choice([{}] * 3 + [{"strict": True}, {"strict": ["policy"]}, {"strict": ["numa_min", "near"]}])
    if options.get("numa_max") == 1 and isinstance(options.get("numa_min"), int):
        del options["numa_min"]
    if "within" in options and len(free) < options["cpus"]:
        del options["within"]
    return Request.model_validate(options)


def cpus_of(mask: int) -> frozenset[int]:
    """The CPUs of a mask, for messages."""
    return from_mask(mask)
