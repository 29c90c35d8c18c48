"""The table of metrics once more, word by word with sets of CPUs: slow, and unlike the scorer's code."""

from collections import Counter
from collections.abc import Sequence

from models import Request, Topology

Domains = list[set[int]]


def domains(topology: Topology, level: str) -> Domains:
    """The CPUs of every domain of the level."""
    members: dict[object, set[int]] = {}
    if level == "l3" and not any(cpu.l3 is not None for cpu in topology.cpus):
        return []
    for cpu in topology.cpus:
        domain = getattr(cpu, level)
        if level == "l3" and domain is None:
            domain = f"CPUs of NUMA node {cpu.numa} without L3"
        members.setdefault(domain, set()).add(cpu.cpu)
    return list(members.values())


def defined_metrics(topology: Topology, free: frozenset[int], request: Request, taken: set[int]) -> dict[str, int]:
    """Every metric of one request's CPUs, whether its options count it or not."""
    numa, sockets, l3s, cores = (domains(topology, level) for level in ("numa", "socket", "l3", "core"))
    shares = [len(node & taken) for node in numa if node & taken]
    doubled = Counter(cpu.core for cpu in topology.cpus if cpu.cpu in taken)
    near = topology.online if request.near is None else topology.local_cpus(request.near)
    return {
        "unevenness": max(0, max(shares) - min(shares) - unit(cores, free, request)),
        "floor_shortfall": max(0, least(topology, numa, request) - len(shares)),
        "outside_near": len(taken - near),
        "numa_nodes": len(shares),
        "sockets": used(sockets, taken),
        "numa_distance": distance(topology, taken),
        "core_types": used(domains(topology, "core_type"), taken),
        "cores": used(cores, taken),
        "doubled_threads": sum(count - 1 for count in doubled.values()),
        "l3_caches": used(l3s, taken),
        **defined_leftovers(topology, free, taken),
        "split_cores": sum(1 for core in cores if 0 < len(core & taken) < len(core & free)),
    }


def defined_leftovers(topology: Topology, free: frozenset[int], taken: set[int]) -> dict[str, int]:
    """The metrics about what is left for others."""
    numa, l3s = domains(topology, "numa"), domains(topology, "l3")
    return {
        "numa_leftover": sum(len(node & free) - len(node & taken) for node in numa if node & taken),
        "numa_balance": sum((len(node & free) - len(node & taken)) ** 2 for node in numa),
        "l3_leftover": sum(len(l3 & free) - len(l3 & taken) for l3 in l3s if l3 & taken),
    }


def used(level: Domains, taken: set[int]) -> int:
    return sum(1 for domain in level if domain & taken)


def unit(cores: Domains, free: frozenset[int], request: Request) -> int:
    return max((len(core) for core in cores if core <= free), default=1) if request.full_cores else 1


def least(topology: Topology, numa: Domains, request: Request) -> int:
    if request.numa_min == "all":
        return sum(1 for node in numa if node - topology.reserved)
    return request.numa_min or 0


def distance(topology: Topology, taken: set[int]) -> int:
    nodes = {cpu.numa for cpu in topology.cpus if cpu.cpu in taken}
    rows = {node.id: node.distances for node in topology.numa_nodes}
    return sum(rows[a].get(b, 20) for a in nodes for b in nodes if a is not None and b is not None and a != b)


def defined_joint(
    topology: Topology, free: frozenset[int], requests: Sequence[Request], taken: Sequence[set[int]]
) -> dict[str, int]:
    """Sums over the requests of every metric, and leftovers of all that is taken."""
    each = [defined_metrics(topology, free, *pair) for pair in zip(requests, taken, strict=True)]
    sums = {name: sum(metrics[name] for metrics in each) for name in each[0]}
    return sums | defined_leftovers(topology, free, set().union(*taken))
