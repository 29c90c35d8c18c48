"""NUMA nodes that may change places."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from topologies.graph import Machine


@lru_cache(maxsize=64)
def interchangeable(machine: Machine, nodes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """NUMA nodes, by position, in groups that may change places without changing any sum of distances.

    Kept, since most requests on a machine ask for the same nodes.
    """
    groups: list[list[int]] = []
    for node in nodes:
        home = next((group for group in groups if _are_twins(machine, nodes, [*group, node])), None)
        if home is None:
            groups.append([node])
        else:
            home.append(node)
    return tuple(map(tuple, groups))


def _are_twins(machine: Machine, nodes: Iterable[int], group: Sequence[int]) -> bool:
    """Whether the last of the group may change places with each of the others."""
    a, inside = group[-1], both_ways(machine, group[0], group[1])
    if any(both_ways(machine, a, b) != inside for b in group[:-1]):
        return False
    others = set(nodes) - set(group)
    return all(both_ways(machine, a, c) == both_ways(machine, group[0], c) for c in others)


def both_ways(machine: Machine, a: int, b: int) -> int:
    """Distance from a to b and back."""
    return machine.distances[a][b] + machine.distances[b][a]
