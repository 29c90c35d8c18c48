"""Symmetries of the graph: which vertices an isomorphism of the coloured machine to itself may exchange."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Groups = tuple[tuple[int, ...], ...]
Colour = TypeVar("Colour", bound=Hashable)


def canonical_form(colours: Iterable[Colour]) -> tuple[tuple[Colour, int], ...]:
    """The form of a domain whose parts have these (sortable) colours: each colour, and how often it occurs.

    Two domains, such as L3s by the colours of their cores, are isomorphic exactly when their forms are equal.
    """
    counts: Counter[Any] = Counter(colours)
    return tuple(sorted(counts.items()))


def may_change_places(
    distance: Callable[[int, int], int], nodes: Sequence[int], colours: Sequence[Hashable]
) -> Groups:
    """The nodes in groups: exchanging any two of a group is an isomorphism that keeps colours and distances.

    Such exchanges can be carried out one after the other, so all orders of a group are alike. ``distance`` is
    symmetric; ``colours`` are given in the order of ``nodes``.
    """
    groups: dict[Hashable, list[list[int]]] = {}
    for node, colour in zip(nodes, colours, strict=True):
        alike = groups.setdefault(colour, [])
        home = next((group for group in alike if _exchange(distance, nodes, group, node)), None)
        if home is None:
            alike.append([node])
        else:
            home.append(node)
    return tuple(
        sorted(
            (tuple(group) for alike in groups.values() for group in alike), key=lambda group: nodes.index(group[0])
        )
    )


def _exchange(distance: Callable[[int, int], int], nodes: Sequence[int], group: Sequence[int], node: int) -> bool:
    """Whether the node may change places with each member of the group."""
    first = group[0]
    inside = distance(first, group[1] if len(group) > 1 else node)
    if any(distance(node, member) != inside for member in group):
        return False
    others = set(nodes) - {*group, node}
    return all(distance(node, other) == distance(first, other) for other in others)
