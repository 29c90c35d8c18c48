"""What is known of one container: what we told the runtime, and what has been confirmed. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, NamedTuple, Self

from driver.nri.sight import Pin, Sight
from models import union

GRACE = 0.3
"""Seconds in which an update may be on its way. After that it counts as lost."""


CREATION = 120.0
"""Seconds from the runtime's question to the container's being listed. After that it has come to nothing."""

STARTING = 30.0
"""Seconds from the runtime's question whether a container may start to its word that it runs. After that it runs,
or has failed, and the word of it is lost."""

Way = Literal["answer", "direct"]
"""How the runtime is told apart from its order of events: in answer to an update of somebody else's, or out of the
blue."""


class Pending(NamedTuple):
    """A mask that may arrive late: in which way the runtime was told it, and when."""

    way: Way
    cpus: int
    since: float


class Stage(IntEnum):
    """How far a container is. Those that have stopped are not kept."""

    CREATING = 0
    """The runtime has asked us, and does not have it in its store yet: it ignores updates."""
    CREATED = 1
    """Updates change the runtime's note of it; whether its cgroup is made from the old or the new is open."""
    STARTING = 2
    """Its cgroup is made and its first process about to run; updates would change the note only."""
    RUNNING = 3


@dataclass(frozen=True)
class Container:
    """A container; sets of CPUs are masks. ``may``: every CPU that its processes may run on, as far as nothing has
    disproved it. ``seen``: the mask that they had for certain, unless they were told another since.

    ``claims``: uids and CPUs of what it was let in with; ``refusal``: why it was not, where it runs all the same.
    ``legible``: whether the kernel's mask of it could be read.
    ``told``, ``told_at``: what the runtime was told last, and when it should have done so (monotonic seconds).
    ``vain``: how often it was told the same again, for the kernel did not show it. ``faithful``: whether the
    runtime's note of its mask cannot be newer than what its processes have. ``pending``: what the runtime may
    still be applying, apart from its order of events. ``version`` counts what it was told and what arrived.
    ``astray``: its mask was not what it should have been, and nobody has put it right yet. ``asked``: the CPUs
    that somebody else last wanted it to have, as the kubelet's static CPU manager does.
    """

    sight: Sight
    stage: Stage
    may: int
    claims: Mapping[str, int] = field(default_factory=dict)
    seen: int | None = None
    legible: bool = False
    refusal: str = ""
    told: Pin | None = None
    told_at: float = 0.0
    vain: int = 0
    faithful: bool = False
    pending: tuple[Pending, ...] = ()
    version: int = 0
    astray: bool = False
    asked: int | None = None

    @property
    def id(self) -> str:
        """The runtime's name for it."""
        return self.sight.id

    @property
    def started(self) -> bool:
        """Whether it has processes, or is about to."""
        return self.stage >= Stage.STARTING

    @property
    def reach(self) -> int:
        """Every CPU that it may run on now or when what is on its way has arrived."""
        return self.may | union(each.cpus for each in self.pending) if self.pending else self.may

    def confirmed(self, pin: Pin) -> bool:
        """Whether its processes run where they should, for certain, and nothing is on its way to change that."""
        told = self.told is None or self.told.cpus == pin.cpus
        return told and not self.pending and self.may == self.seen == pin.cpus

    def tell(self, pin: Pin, now: float) -> Self:
        """The runtime is told. If it was told the same long ago, that was lost."""
        again = self.started and self.told == pin
        return replace(
            self,
            seen=self.seen if self.seen == pin.cpus and self.told in (None, pin) else None,
            told=pin,
            told_at=now,
            vain=self.vain + 1 if again else 0,
            version=self.version + 1,
            faithful=self.stage is Stage.RUNNING or (self.faithful and self.told == pin),
            may=self.may | pin.cpus,
            astray=self.astray or (again and now - self.told_at > GRACE),
        )

    def tell_apart(self, way: Way, pin: Pin, now: float) -> Self:
        """The runtime is told apart from its order of events, so that this may arrive late."""
        return replace(self.tell(pin, now), pending=(*self.pending, Pending(way, pin.cpus, now)))

    def arrived(self, way: Way) -> Self:
        """What was told first in this way has been applied, whatever was told since."""
        return self._drop([each for each in self.pending if each.way == way][:1])

    def all_arrived(self, now: float) -> Self:
        """What may still have been on its way is not any more."""
        old = [each for each in self.pending if now - each.since > GRACE]
        return self._drop(old) if old else self

    def _drop(self, arrived: list[Pending]) -> Self:
        masks = {each.cpus for each in arrived}
        return replace(
            self,
            pending=tuple(each for each in self.pending if each not in arrived),
            may=self.may | union(masks),
            seen=self.seen if masks == {self.seen} else None,
            version=self.version + 1,
        )

    def reach_stage(self, stage: Stage) -> Self:
        """It has come so far, or was further already."""
        return self if stage <= self.stage else replace(self, stage=stage)

    def come_due(self, now: float) -> Self:
        """One that has been about to run for long is told what it gets, as if it ran: that shows what it is."""
        overdue = self.stage is Stage.STARTING and now - self.told_at > STARTING
        return self.reach_stage(Stage.RUNNING) if overdue else self

    def looked(self, cpus: int, version: int) -> Self:
        """The kernel's mask, read when this was so old. What was told last may still be on its way."""
        if not self.started:
            return self
        if version != self.version:
            return replace(self, may=self.may | cpus, legible=True)
        coming = cpus if self.told is None else self.told.cpus
        if self.may == self.seen == cpus == coming and self.legible:
            return self
        vain = 0 if cpus == coming else self.vain
        return replace(self, may=cpus | coming, seen=cpus, legible=True, vain=vain)

    def listed(self, cpus: int) -> Self:
        """The runtime's note of its mask, where the kernel's cannot be read.

        It shows that an update has arrived, unless the note was the same before: then it is taken on trust.
        """
        if self.started and self.faithful and self.told is not None and self.told.cpus == cpus:
            return replace(self, may=cpus, seen=cpus)
        return replace(self, may=self.may | cpus)
