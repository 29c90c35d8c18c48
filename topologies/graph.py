"""The machine as a networkx graph: the one place that knows networkx.

Vertices are ``(level, id)``; an edge leads from each domain to the largest domains inside it, down to the CPUs.
Where domains do not nest (an L3 over two NUMA nodes, a NUMA node over two sockets) a domain simply has more
than one parent. NUMA distances are edges of their own, marked ``distance``.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import networkx as nx

from models import CPU, Topology

GraphLevel = Literal["machine", "socket", "die", "numa", "l3", "core", "cpu"]
Vertex = tuple[str, int | str | None]

LEVELS: tuple[GraphLevel, ...] = ("machine", "socket", "die", "numa", "l3", "core", "cpu")
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20


@dataclass(frozen=True)
class Domain:
    """A socket, NUMA node, L3 or core: its id (``None`` if the kernel names none) and CPUs as a bit mask."""

    level: GraphLevel
    id: int | str | None
    mask: int
    core_type: str = "standard"


@dataclass(frozen=True)
class Home:
    """Where a core lies: positions in the machine's tuples; ``l3`` is -1 where no CPU has one."""

    core: int
    numa: int
    socket: int
    l3: int


class Machine:
    """A prepared machine: the graph, and what solvers read off it. Keep it and use it for many solves.

    Domains are ordered by their lowest online CPU, never by id. NUMA nodes without CPUs are in the graph and
    nowhere else. Where no CPU has an L3 there are none; where some have, the other CPUs of each NUMA node
    count as one L3 of their own.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.graph = build_graph(topology)
        self.online = sum(1 << cpu.cpu for cpu in topology.cpus)

    @cached_property
    def sockets(self) -> tuple[Domain, ...]:
        """All sockets."""
        return self._domains("socket")

    @cached_property
    def numa_nodes(self) -> tuple[Domain, ...]:
        """All NUMA nodes that have CPUs; a single implicit one, with id ``None``, on a machine without NUMA."""
        return self._domains("numa")

    @cached_property
    def l3s(self) -> tuple[Domain, ...]:
        """All L3s."""
        return self._domains("l3")

    @cached_property
    def cores(self) -> tuple[Domain, ...]:
        """All cores."""
        return self._domains("core")

    @cached_property
    def homes(self) -> tuple[Home, ...]:
        """Where each core lies, in the order of ``cores``."""
        levels = (self.numa_nodes, self.sockets, self.l3s)
        return tuple(Home(i, *(_holder(level, core) for level in levels)) for i, core in enumerate(self.cores))

    @cached_property
    def distances(self) -> tuple[tuple[int, ...], ...]:
        """``distances[a][b]`` between NUMA nodes, by position in ``numa_nodes``; 10 and 20 if unknown."""
        nodes = [("numa", domain.id) for domain in self.numa_nodes]
        return tuple(tuple(self._distance(a, b) for b in nodes) for a in nodes)

    def _distance(self, a: Vertex, b: Vertex) -> int:
        if self.graph.has_edge(a, b) and "distance" in self.graph.edges[a, b]:
            return int(self.graph.edges[a, b]["distance"])
        return LOCAL_DISTANCE if a == b else REMOTE_DISTANCE

    def _domains(self, level: GraphLevel) -> tuple[Domain, ...]:
        found = [
            Domain(level, data["id"], data["mask"], data["core_type"])
            for vertex, data in self.graph.nodes(data=True)
            if vertex[0] == level and data["mask"]
        ]
        return tuple(sorted(found, key=lambda domain: domain.mask & -domain.mask))


def _holder(level: tuple[Domain, ...], core: Domain) -> int:
    return next((i for i, domain in enumerate(level) if domain.mask & core.mask), -1)


def build_graph(topology: Topology) -> "nx.DiGraph[Vertex]":
    """The graph of the machine; each vertex carries its ``id``, ``core_type`` and the ``mask`` of its CPUs."""
    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    for node in topology.numa_nodes:
        graph.add_node(("numa", node.id), id=node.id, core_type="")
    has_l3 = any(cpu.l3 is not None for cpu in topology.cpus)
    paths = [_domains_of(cpu, topology.name, has_l3) for cpu in topology.cpus]
    for cpu, path in zip(topology.cpus, paths, strict=True):
        for vertex in path:
            graph.add_node(vertex, id=vertex[1], core_type=cpu.core_type)
    _add_containment(graph, paths)
    _add_masks(graph)
    for node in topology.numa_nodes:
        for other, distance in node.distances.items():
            graph.add_edge(("numa", node.id), ("numa", other), distance=distance)
    return graph


def _domains_of(cpu: CPU, machine: str, has_l3: bool) -> list[Vertex]:
    """The vertices that hold the CPU, outermost first, itself last."""
    ids: dict[GraphLevel, int | str | None] = {"machine": machine, "socket": cpu.socket, "numa": cpu.numa}
    if cpu.die is not None:
        ids["die"] = cpu.die
    if has_l3:
        ids["l3"] = cpu.l3 if cpu.l3 is not None else f"none in NUMA node {cpu.numa}"
    ids |= {"core": cpu.core, "cpu": cpu.cpu}
    return [(level, ids[level]) for level in LEVELS if level in ids]


def _add_containment(graph: "nx.DiGraph[Vertex]", paths: list[list[Vertex]]) -> None:
    holders: dict[Vertex, list[Vertex]] = {}
    for path in paths:
        for depth, vertex in enumerate(path):
            outer = path[:depth]
            known = holders.setdefault(vertex, outer)
            if known is not outer:
                holders[vertex] = [a for a in known if a in outer]
    above: dict[Vertex, set[Vertex]] = {}
    for vertex in sorted(holders, key=lambda vertex: LEVELS.index(vertex[0])):
        above[vertex] = set()
        for holder in reversed(holders[vertex]):
            if holder not in above[vertex]:
                graph.add_edge(holder, vertex)
                above[vertex] |= above[holder] | {holder}


def _add_masks(graph: "nx.DiGraph[Vertex]") -> None:
    for vertex in reversed(list(nx.topological_sort(graph))):
        below = 1 << int(vertex[1] or 0) if vertex[0] == "cpu" else 0
        for child in graph.successors(vertex):
            below |= graph.nodes[child]["mask"]
        graph.nodes[vertex]["mask"] = below
