"""The graph in Graphviz's language, as ``dot -Tsvg`` reads it."""

from collections.abc import Iterator
from typing import Any

from models import Topology, format_cpuset, from_mask
from topologies.graph.build import Vertex, build_graph

WORDS = {"numa": "NUMA node", "l3": "L3"}
"""How a level is called where its name in the graph is not the word for it."""


def as_dot(topology: Topology) -> Iterator[str]:
    """Lines of a digraph: domains down to cores, devices, and distances between NUMA nodes."""
    graph = build_graph(topology)
    yield f"digraph {_quoted(topology.name or 'machine')} {{"
    yield "  node [shape=box]"
    for vertex, data in graph.nodes(data=True):
        if vertex[0] != "cpu":
            yield f"  {_name(vertex)} [label={_quoted(_label(vertex, data))}{_shape(vertex)}]"
    for a, b, data in graph.edges(data=True):
        if b[0] != "cpu" and a != b and (line := _edge(a, b, data)):
            yield line
    yield "}"


def _name(vertex: Vertex) -> str:
    return _quoted(f"{vertex[0]} {vertex[1]}")


def _label(vertex: Vertex, data: dict[str, Any]) -> str:
    level, domain = vertex
    head = str(domain) if level in ("device", "machine") else f"{WORDS.get(level, level)} {domain}"
    return f"{head or 'machine'}\nCPUs {format_cpuset(from_mask(data['mask'])) or 'none'}"


def _shape(vertex: Vertex) -> str:
    return ", shape=ellipse" if vertex[0] == "device" else ""


def _edge(a: Vertex, b: Vertex, data: dict[str, Any]) -> str:
    if "distance" in data:
        return f"  {_name(a)} -> {_name(b)} [label={data['distance']}, style=dashed, constraint=false]"
    style = " [style=dotted]" if "near" in data else ""
    return f"  {_name(a)} -> {_name(b)}{style}"


def _quoted(text: str) -> str:
    plain = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
