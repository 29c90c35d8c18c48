"""What solvers ask of a machine's graph, prepared once for many solves."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from models import Topology, to_mask
from topologies.graph.build import GraphLevel, Vertex, build_graph
from topologies.graph.symmetry import Groups, may_change_places

LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20

HomeLevel = Literal["numa", "socket", "l3"]


@dataclass(frozen=True)
class Domain:
    """A socket, NUMA node, L3 or core: its id (``None`` if the kernel names none) and CPUs as a bit mask."""

    level: GraphLevel
    id: int | str | None
    mask: int
    core_type: str = "standard"

    @property
    def vertex(self) -> Vertex:
        """Its vertex in the graph."""
        return (self.level, self.id)


@dataclass(frozen=True)
class Home:
    """Where a core lies: positions in the machine's tuples; ``l3`` is -1 where no CPU has one."""

    core: int
    numa: int
    socket: int
    l3: int


class Machine:
    """A prepared machine: its graph, and the answers to what solvers ask of it. Keep it for many solves.

    Domains are ordered by their lowest online CPU, never by id. NUMA nodes without CPUs are in the graph and
    nowhere else. Where no CPU has an L3 there are none; where some have, the other CPUs of each NUMA node
    count as one L3 of their own.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.graph = build_graph(topology)
        self.online = to_mask(cpu.cpu for cpu in topology.cpus)
        self._groups: dict[tuple[int, ...], Groups] = {}

    @cached_property
    def _levels(self) -> dict[str, tuple[Domain, ...]]:
        found: dict[str, list[Domain]] = {"socket": [], "numa": [], "l3": [], "core": []}
        for (level, _), data in self.graph.nodes(data=True):
            if level in found and data["mask"]:
                found[level].append(Domain(level, data["id"], data["mask"], data["core_type"] or "standard"))
        return {level: tuple(sorted(domains, key=_lowest)) for level, domains in found.items()}

    @property
    def sockets(self) -> tuple[Domain, ...]:
        """All sockets."""
        return self._levels["socket"]

    @property
    def numa_nodes(self) -> tuple[Domain, ...]:
        """All NUMA nodes that have CPUs; a single implicit one, with id ``None``, on a machine without NUMA."""
        return self._levels["numa"]

    @property
    def l3s(self) -> tuple[Domain, ...]:
        """All L3s."""
        return self._levels["l3"]

    @property
    def cores(self) -> tuple[Domain, ...]:
        """All cores."""
        return self._levels["core"]

    def domains(self, level: HomeLevel) -> tuple[Domain, ...]:
        """All domains of a level that requests can be bound to."""
        return self._levels[level]

    @cached_property
    def core_types(self) -> tuple[int, ...]:
        """A mask of the CPUs of each core type that occurs, by lowest CPU."""
        masks: dict[str, int] = {}
        for core in self.cores:
            masks[core.core_type] = masks.get(core.core_type, 0) | core.mask
        return tuple(sorted(masks.values(), key=lambda mask: mask & -mask))

    def parents(self, domain: Domain) -> tuple[Vertex, ...]:
        """The smallest domains that hold this one: several, where they cross; the machine itself has none."""
        edges = self.graph.in_edges(domain.vertex, data=True)
        return tuple(outer for outer, _, data in edges if not data)

    @cached_property
    def _ancestors(self) -> dict[Vertex, frozenset[Vertex]]:
        """All domains that hold each one of the levels that there are domains of."""
        found: dict[Vertex, frozenset[Vertex]] = {}
        merged: dict[tuple[Vertex, ...], frozenset[Vertex]] = {}
        for domain in (domain for level in self._levels.values() for domain in level):
            parents = self.parents(domain)
            if parents not in merged:
                merged[parents] = self._all_above(parents)
            found[domain.vertex] = merged[parents]
        return found

    def _all_above(self, vertices: Iterable[Vertex]) -> frozenset[Vertex]:
        """The vertices and all that hold them."""
        above, left = set[Vertex](), list(vertices)
        while left:
            vertex = left.pop()
            if vertex not in above:
                above.add(vertex)
                left += (outer for outer, _, data in self.graph.in_edges(vertex, data=True) if not data)
        return frozenset(above)

    @cached_property
    def homes(self) -> tuple[Home, ...]:
        """Where each core lies, in the order of ``cores``."""
        positions = {
            domain.vertex: (level, i)
            for level in ("numa", "socket", "l3")
            for i, domain in enumerate(self._levels[level])
        }
        places: dict[frozenset[Vertex], dict[str, int]] = {}
        homes = []
        for i, core in enumerate(self.cores):
            above = self._ancestors[core.vertex]
            if above not in places:
                places[above] = {"l3": -1} | dict(positions[v] for v in above if v in positions)
            homes.append(Home(core=i, **places[above]))
        return tuple(homes)

    def nests(self, inner: HomeLevel, outer: HomeLevel, cores: Iterable[int] | None = None) -> bool:
        """Whether each domain of the inner level lies in one of the outer level.

        With ``cores``, positions of some: whether that holds of the parts of domains that these cores make up.
        """
        if cores is None:
            return not self.crossing(inner, outer)
        lies_in: dict[int, int] = {}
        pairs = ((getattr(self.homes[core], inner), getattr(self.homes[core], outer)) for core in cores)
        return all(lies_in.setdefault(a, b) == b for a, b in pairs if a >= 0)

    def crossing(self, inner: HomeLevel, outer: HomeLevel) -> tuple[int, ...]:
        """Positions of the domains of the inner level that do not lie in one of the outer level."""
        if (inner, outer) not in self._crossing:
            domains = enumerate(self._levels[inner])
            self._crossing[inner, outer] = tuple(i for i, domain in domains if not self._lies_in(domain, outer))
        return self._crossing[inner, outer]

    def _lies_in(self, domain: Domain, outer: HomeLevel) -> bool:
        """Whether a domain of the level holds it; one of the same CPUs may be below it in the graph."""
        held = any(level == outer for level, _ in self._ancestors[domain.vertex])
        return held or any(other.mask == domain.mask for other in self._levels[outer])

    @cached_property
    def _crossing(self) -> dict[tuple[str, str], tuple[int, ...]]:
        return {}

    @cached_property
    def distances(self) -> tuple[tuple[int, ...], ...]:
        """``distances[a][b]`` between NUMA nodes, by position in ``numa_nodes``; 10 and 20 if unknown."""
        nodes = [domain.vertex for domain in self.numa_nodes]
        return tuple(tuple(self._distance(a, b) for b in nodes) for a in nodes)

    def _distance(self, a: Vertex, b: Vertex) -> int:
        edge = self.graph.get_edge_data(a, b, default={})
        return int(edge.get("distance", LOCAL_DISTANCE if a == b else REMOTE_DISTANCE))

    def both_ways(self, a: int, b: int) -> int:
        """Distance between two NUMA nodes, by position, there and back."""
        return self.distances[a][b] + self.distances[b][a]

    def interchangeable(self, nodes: tuple[int, ...], colours: Mapping[int, Hashable] | None = None) -> Groups:
        """The NUMA nodes, by position, in groups whose members may change places.

        Of these nodes, an exchange of two of a group changes no distance, both ways added up, and their colours
        (what else must be alike in both, such as free CPUs) are equal. Groups and members are in the order given.
        """
        if colours is not None:
            return may_change_places(self.both_ways, nodes, [colours[node] for node in nodes])
        # Kept, since most requests on a machine ask for the same nodes.
        if nodes not in self._groups:
            self._groups[nodes] = may_change_places(self.both_ways, nodes, [None] * len(nodes))
        return self._groups[nodes]

    def near(self, place: str) -> int:
        """Mask of the CPUs that are local to a device's name, or in the NUMA nodes of a CPU list.

        Raises ``BadInputError`` when it is neither, or when the device does not say where it is.
        """
        vertex: Vertex = ("device", place)
        if self.graph.has_node(vertex):
            # A device without edges is near no CPU, or does not say where it is: then this raises.
            at = self.graph.nodes[vertex]["mask"] if self.graph.out_degree(vertex) else None
            return int(at) if at is not None else to_mask(self.topology.local_cpus(place))
        named = to_mask(self.topology.cpus_named(place))
        return sum(node.mask for node in self.numa_nodes if node.mask & named)


def _lowest(domain: Domain) -> int:
    return domain.mask & -domain.mask
