"""What an engine found, and what was proven about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Outcome:
    """An allocation with what was proven about it.

    ``taken``: a mask per request, or ``None``. ``proven``: that this is the one best answer, or that there is
    none. ``bounds``: per metric the least value not excluded, ``None`` where that was not reached. ``proof``:
    whether tables or a search came to that.
    """

    taken: tuple[int, ...] | None
    proven: bool
    bounds: Mapping[str, int | None] = field(default_factory=dict)
    proof: Literal["tables", "search"] = "search"
