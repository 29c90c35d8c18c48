"""What a method has found and proved."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """An allocation with what was proven about it.

    ``taken``: a mask per request, or ``None``. ``proven``: that this is the one best answer, or that there is
    none. ``bounds``: per metric the least value not excluded, ``None`` where that was not reached.
    """

    taken: tuple[int, ...] | None
    proven: bool
    bounds: Mapping[str, int | None] = field(default_factory=dict)
