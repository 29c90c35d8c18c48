"""Blocks: cores of one request that the spans of an allocation cannot tell apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from solver.problem import CorePart, Demand
from topologies.graph import Machine


@dataclass(frozen=True)
class Block:
    """Cores in one NUMA node, one socket, of one core type, and of one L3 unless ``l3`` is ``None``.

    ``numa``, ``socket`` and ``l3`` are positions in the machine's tuples.
    """

    numa: int
    socket: int
    core_type: str
    l3: int | None
    parts: tuple[CorePart, ...]

    @property
    def place(self) -> tuple[int, int, str, int]:
        """What distinguishes it from other blocks, of any request."""
        return (self.numa, self.socket, self.core_type, -1 if self.l3 is None else self.l3)

    @property
    def mask(self) -> int:
        """All CPUs that may be taken."""
        return sum(part.allowed for part in self.parts)


def blocks_of(demand: Demand, by_l3: bool) -> tuple[Block, ...]:
    """The request's cores in blocks, in order of NUMA node and then of lowest CPU."""
    groups: dict[tuple[int, int, str, int | None], list[CorePart]] = {}
    for part in demand.parts:
        key = (part.numa, part.socket, part.core_type, part.l3 if by_l3 else None)
        groups.setdefault(key, []).append(part)
    found = [Block(*key, tuple(parts)) for key, parts in groups.items()]
    return tuple(sorted(found, key=lambda block: (block.numa, block.parts[0].core)))


def l3s_lie_in_blocks(machine: Machine, parts: Sequence[CorePart]) -> bool:
    """Whether blocks that are not split by L3 still hold whole L3s, as far as these cores go."""
    cores = [part.core for part in parts]
    types: dict[int, str] = {}
    of_one_type = all(
        types.setdefault(part.l3, part.core_type) == part.core_type for part in parts if part.l3 >= 0
    )
    return of_one_type and machine.nests("l3", "numa", cores) and machine.nests("l3", "socket", cores)
