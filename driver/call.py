"""One call of the kubelet about a claim: since when, whether it is still waited for, what it spends time on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from driver.claims.view import ClaimView
from driver.ledger.entry import Entry
from driver.ports import ClaimRef, Observer, Stage

LEDGER = "ledger"
"""Stands for an engine where the claim had its CPUs already."""


def always() -> bool:
    """Somebody waits."""
    return True


@dataclass
class Call:
    """``wanted``: whether anybody waits. ``spent``: seconds by stage, tries added up.

    ``engine``: what has chosen the claim's CPUs in this call. ``view``: the claim as it was last read. ``free``:
    CPUs that were free before that.
    """

    ref: ClaimRef
    wanted: Callable[[], bool] = always
    clock: Callable[[], float] = time.monotonic
    spent: dict[Stage, float] = field(default_factory=dict)
    engine: str = LEDGER
    view: ClaimView | None = None
    free: frozenset[int] = frozenset()
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def age(self) -> float:
        """Seconds since it came."""
        return self.clock() - self.began

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """What is done inside counts as this stage."""
        began = self.clock()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + self.clock() - began

    def tell(self, observer: Observer) -> None:
        """Have the stages counted."""
        for name, seconds in self.spent.items():
            observer.stage(name, seconds)


@dataclass(frozen=True)
class Look:
    """A claim as the API server has it, read without holding anything up.

    ``former``: what the ledger had of it before. ``view`` is ``None`` if nobody answered in time and the ledger
    has the claim.
    """

    former: Entry | None
    view: ClaimView | None

    def is_current(self, entry: Entry | None) -> bool:
        """Whether nobody has changed the ledger's entry meanwhile, perhaps by a newer look."""
        return _essence(entry) == _essence(self.former)


def _essence(entry: Entry | None) -> tuple[object, ...] | None:
    """What looks are compared with and change: all but the owner, who may come at any time."""
    return None if entry is None else (entry.fingerprint, entry.cpuset, entry.pods, entry.name)
