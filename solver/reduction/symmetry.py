"""Symmetric NUMA nodes: of those that no request can tell apart, one order is enough."""

from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise

from topologies.graph import Machine


def symmetric_pairs(machine: Machine, colours: Mapping[int, Hashable]) -> Iterator[tuple[int, int]]:
    """Neighbours, by position, in each group of NUMA nodes that may change places.

    ``colours``: of each NUMA node all that tells it from others, besides distances. A model may demand that the
    earlier of each pair gets no less than the later: any allocation can be rearranged so.
    """
    for group in machine.interchangeable(tuple(colours), colours):
        yield from pairwise(group)
