"""From the topology document to the graph.

Vertices are ``(level, id)``; an edge leads from each domain to the largest domains inside it, down to the CPUs.
Where domains do not nest (an L3 over parts of two NUMA nodes, a NUMA node over two sockets) a domain simply has
more than one parent. Of domains with the same CPUs the one whose level comes first in ``LEVELS`` holds the other.

Edges of two more kinds are marked: ``distance`` between NUMA nodes, and ``near`` from a device to the largest
domains whose CPUs are all local to it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import networkx as nx

from models import CPU, Device, Topology

GraphLevel = Literal["machine", "socket", "die", "numa", "l3", "core", "cpu", "device"]
Vertex = tuple[GraphLevel, int | str | None]
Path = tuple[Vertex, ...]

LEVELS: tuple[GraphLevel, ...] = ("machine", "socket", "die", "numa", "l3", "core", "cpu")


def build_graph(topology: Topology) -> "nx.DiGraph[Vertex]":
    """The graph of the machine. Each vertex carries its ``id``, ``core_type`` and the ``mask`` of its CPUs.

    The mask of a device holds the CPUs that are local to it; that of a NUMA node without CPUs is 0.
    """
    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    cores = _cores(topology)
    masks = _masks(cores)
    parents = _parents(masks)
    graph.add_nodes_from(_vertices(topology, cores, masks))
    graph.add_edges_from((outer, inner) for inner, outers in parents.items() for outer in outers)
    graph.add_edges_from(_edges_to_cores(cores, masks, parents))
    for node in topology.numa_nodes:
        for other, distance in node.distances.items():
            graph.add_edge(("numa", node.id), ("numa", other), distance=distance)
    for device in topology.devices:
        _add_device(graph, device)
    return graph


Cores = dict[int, tuple[Path, int, CPU]]
"""By its id, each core's path of outer domains, outermost first; its CPUs as a mask; one of them."""


def _cores(topology: Topology) -> Cores:
    """All cores. CPUs of a core lie in the same domains: the document has been checked for that."""
    has_l3 = any(cpu.l3 is not None for cpu in topology.cpus)
    found: Cores = {}
    for cpu in topology.cpus:
        if cpu.core in found:
            path, mask, first = found[cpu.core]
            found[cpu.core] = (path, mask | 1 << cpu.cpu, first)
        else:
            found[cpu.core] = (_path(cpu, topology.name, has_l3), 1 << cpu.cpu, cpu)
    return found


def _path(cpu: CPU, machine: str, has_l3: bool) -> Path:
    """The domains that hold the CPU, outermost first, above its core."""
    die: Path = () if cpu.die is None else (("die", cpu.die),)
    l3: Path = (("l3", cpu.l3 if cpu.l3 is not None else f"none in NUMA node {cpu.numa}"),) if has_l3 else ()
    return (("machine", machine), ("socket", cpu.socket), *die, ("numa", cpu.numa), *l3)


def _masks(cores: Cores) -> dict[Path, int]:
    """The CPUs of each path: cores of one path lie in the same domains."""
    masks: dict[Path, int] = {}
    for path, mask, _ in cores.values():
        masks[path] = masks.get(path, 0) | mask
    return masks


def _by_domain(masks: dict[Path, int]) -> dict[Vertex, int]:
    found: dict[Vertex, int] = {}
    for path, mask in masks.items():
        for vertex in path:
            found[vertex] = found.get(vertex, 0) | mask
    return found


def _parents(masks: dict[Path, int]) -> dict[Vertex, list[Vertex]]:
    """The smallest domains that hold each domain above the cores."""
    sizes, around = _by_domain(masks), dict[Vertex, set[Vertex]]()
    for path in masks:
        for vertex in path:
            around[vertex] = around[vertex] & set(path) if vertex in around else set(path)
    holders = {
        inner: {outer for outer in outers if _holds(outer, inner, sizes)} for inner, outers in around.items()
    }
    return {inner: _innermost(outers, holders) for inner, outers in holders.items()}


def _holds(outer: Vertex, inner: Vertex, sizes: dict[Vertex, int]) -> bool:
    """Whether the first, which has all CPUs of the second, is the larger or comes first of equals."""
    if sizes[outer] != sizes[inner]:
        return True
    return LEVELS.index(outer[0]) < LEVELS.index(inner[0])


def _innermost(outers: Iterable[Vertex], holders: dict[Vertex, set[Vertex]]) -> list[Vertex]:
    """Those of the domains that hold none of the others."""
    outers = set(outers)
    return sorted(outers - set().union(*(holders[outer] for outer in outers)), key=lambda v: LEVELS.index(v[0]))


def _edges_to_cores(
    cores: Cores, masks: dict[Path, int], parents: dict[Vertex, list[Vertex]]
) -> Iterator[tuple[Vertex, Vertex]]:
    """Edges from each path's innermost domains to its cores, and on to their CPUs."""
    inner = {path: [v for v in path if not any(v in parents[other] for other in path)] for path in masks}
    for core, (path, mask, _) in cores.items():
        for outer in inner[path]:
            yield outer, ("core", core)
        for cpu in _bits(mask):
            yield ("core", core), ("cpu", cpu)


def _vertices(topology: Topology, cores: Cores, masks: dict[Path, int]) -> Iterator[tuple[Vertex, dict[str, Any]]]:
    for node in topology.numa_nodes:
        yield ("numa", node.id), {"id": node.id, "core_type": "", "mask": 0}
    for vertex, mask in _by_domain(masks).items():
        yield vertex, {"id": vertex[1], "core_type": "", "mask": mask}
    for core, (_, mask, cpu) in cores.items():
        yield ("core", core), {"id": core, "core_type": cpu.core_type, "mask": mask}
    for cpu in topology.cpus:
        yield ("cpu", cpu.cpu), {"id": cpu.cpu, "core_type": cpu.core_type, "mask": 1 << cpu.cpu}


def _add_device(graph: "nx.DiGraph[Vertex]", device: Device) -> None:
    """The device, with edges to the domains that are near it; without, where it does not say where it is."""
    vertex: Vertex = ("device", device.name)
    near: list[Vertex] = [("numa", device.numa)] if device.local_cpus is None and device.numa is not None else []
    mask = graph.nodes[near[0]]["mask"] if near else 0
    if device.local_cpus is not None:
        mask = sum(1 << cpu for cpu in device.local_cpus if graph.has_node(("cpu", cpu)))
        near = list(_largest_inside(graph, mask))
    graph.add_node(vertex, id=device.name, core_type="", mask=mask)
    graph.add_edges_from(((vertex, domain) for domain in near), near=True)


def _largest_inside(graph: "nx.DiGraph[Vertex]", cpus: int) -> Iterator[Vertex]:
    """Disjoint domains that make up the CPUs, as few as there are."""
    left = cpus
    for level in LEVELS:
        for vertex, data in graph.nodes(data=True):
            if vertex[0] == level and data["mask"] & left and data["mask"] & ~left == 0:
                yield vertex
                left &= ~data["mask"]
        if not left:
            return


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
