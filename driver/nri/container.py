"""What is known of one container: what we told the runtime, and what has been confirmed. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self

from driver.ledger.entry import Owner
from driver.nri.sight import Pin, Sight

GRACE = 0.3
"""Seconds in which an update may be on its way. After that it counts as lost."""


class Stage(IntEnum):
    """How far a container is. Those that have stopped are not kept."""

    CREATING = 0
    """The runtime has asked us, and does not have it in its store yet: it ignores updates."""
    CREATED = 1
    """Updates change the runtime's note of it; whether its cgroup is made from the old or the new is open."""
    STARTING = 2
    """Its cgroup is made and its first process about to run; updates change the note only."""
    RUNNING = 3


@dataclass(frozen=True)
class Container:
    """A container. ``may``: every CPU that its processes may run on, as far as nothing has disproved it.

    ``claims``: uids and CPUs of what it was let in with; ``refusal``: why it was not, where it runs all the same.
    ``told``, ``told_at``: what the runtime was told last, and when (monotonic seconds). ``live``: told since it
    runs. ``pending``: CPUs of our answers to updates of others, which the runtime may still be applying.
    ``astray``: its mask was not what it should have been, and nobody has put it right yet.
    """

    sight: Sight
    stage: Stage
    may: frozenset[int]
    claims: Mapping[str, frozenset[int]] = field(default_factory=dict)
    refusal: str = ""
    told: Pin | None = None
    told_at: float = 0.0
    live: bool = False
    pending: frozenset[int] = frozenset()
    astray: bool = False

    @property
    def id(self) -> str:
        """The runtime's name for it."""
        return self.sight.id

    @property
    def owner(self) -> Owner:
        """Its names that outlive restarts."""
        return self.sight.owner

    @property
    def started(self) -> bool:
        """Whether it has processes, or is about to."""
        return self.stage >= Stage.STARTING

    @property
    def reach(self) -> frozenset[int]:
        """Every CPU that it may run on now or when what is on its way has arrived."""
        return self.may | self.pending

    def tell(self, pin: Pin, now: float) -> Self:
        """The runtime is told. If it was told the same long ago, that was lost."""
        lost = self.started and self.told == pin and now - self.told_at > GRACE
        return replace(
            self,
            told=pin,
            told_at=now,
            live=self.stage is Stage.RUNNING,
            may=self.may | pin.cpus,
            astray=self.astray or lost,
        )

    def answer(self, pin: Pin, now: float) -> Self:
        """The runtime is told in answer to somebody's update, which it applies some time after."""
        return replace(self.tell(pin, now), pending=self.pending | pin.cpus)

    def reach_stage(self, stage: Stage) -> Self:
        """It has come so far, or was further already."""
        return replace(self, stage=max(stage, self.stage))

    def looked(self, cpus: frozenset[int], since: float) -> Self:
        """The kernel's mask, read when ``told_at`` was ``since``. What was told may still be on its way."""
        if not self.started:
            return self
        if since != self.told_at:
            return replace(self, may=self.may | cpus)
        coming = frozenset() if self.told is None else self.told.cpus
        return replace(self, may=cpus if cpus == coming else cpus | coming)

    def listed(self, cpus: frozenset[int]) -> Self:
        """The runtime's note of its mask, where the kernel's cannot be read.

        It counts only if it follows an update of the running container: else it may be newer than the cgroup.
        """
        if self.live and self.told is not None and self.told.cpus == cpus:
            return replace(self, may=cpus)
        return replace(self, may=self.may | cpus)
