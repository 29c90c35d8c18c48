"""Distances between NUMA nodes in hwloc XML: one matrix of factors in version 1, integers by node since 2."""

from xml.etree.ElementTree import Element

from topologies.readers.assemble import Distances
from topologies.readers.hwloc_xml import HwlocDocument, HwlocObject

_KIND_LATENCY = 4
"""``HWLOC_DISTANCES_KIND_MEANS_LATENCY`` (2.x) / ``..._VALUE_LATENCY`` (3.x)."""


def read_distances(document: HwlocDocument, machine: HwlocObject) -> Distances:
    """Rows by NUMA node id, columns in the order of ids; empty where none can be read."""
    nodes = [found for found in machine.walk() if found.type == "NUMANode"]
    ids = [node.number("os_index") or 0 for node in nodes]
    for holder, element in document.extras:
        try:
            if element.tag == "distances2" and _is_numa_latency(element):
                return _rows(_numbers(element, "indexes"), _numbers(element, "u64values"))
            if element.tag == "distances" and _is_of(holder, element, nodes):
                return _rows(ids, _latencies(element))
        except ValueError:
            continue
    return {}


def _is_numa_latency(element: Element) -> bool:
    kind = element.get("kind", "")
    wanted = element.get("type") == "NUMANode" and element.get("indexing") == "os"
    return wanted and kind.isdecimal() and bool(int(kind[:6]) & _KIND_LATENCY)


def _is_of(holder: HwlocObject | None, element: Element, nodes: list[HwlocObject]) -> bool:
    """Whether a version 1 matrix is about the NUMA nodes: as many, and at their level below the object it is in.

    Their level is that of the deepest: nodes of GPU memory stand further up in the file (POWER9).
    """
    level = max((_depth(node) for node in nodes), default=0)
    depth = (_depth(holder) if holder else 0) + int(element.get("relative_depth", "-1"))
    return element.get("nbobjs") == str(len(nodes)) and depth == level


def _depth(found: HwlocObject) -> int:
    return sum(1 for _ in found.ancestors())


def _numbers(element: Element, tag: str) -> list[int]:
    return [int(text) for part in element.iter(tag) for text in (part.text or "").split() if len(text) < 20]


def _latencies(element: Element) -> list[int]:
    base = float(element.get("latency_base", "nan"))
    return [round(float(part.get("value", "nan")) * base) for part in element.iter("latency")]


def _rows(ids: list[int], values: list[int]) -> Distances:
    size = len(ids)
    if len(values) != size * size or len(set(ids)) != size:
        raise ValueError("not a square matrix")
    columns = sorted(range(size), key=lambda i: ids[i])
    return {ids[i]: [values[i * size + j] for j in columns] for i in range(size)}
