"""Which containers are not in line with the ledger, and which must be told so: decisions without memory."""

from collections.abc import Iterable

from driver.nri.container import Container, Stage
from driver.nri.pins import desired, exclusive
from driver.nri.plan import Plan
from driver.nri.sight import Pin

HEEDING = (Stage.CREATED, Stage.RUNNING)
"""Stages at which the runtime heeds an update."""

UNDERWAY = 1.0
"""Seconds from a container's creation in which its start is to be expected. A mask that it is told then may come
too late for its cgroup."""


def is_loose(container: Container, plan: Plan) -> bool:
    """Whether anything remains to be done or seen. Everything else in this file is about such containers alone."""
    pin = desired(container, plan)
    strays = container.reach & plan.claimed & ~exclusive(container, plan)
    undone = pin.cpus and not (container.confirmed(pin) and _is_told(container, pin))
    return bool(strays or undone)


def is_unsettled(container: Container, plan: Plan) -> bool:
    """Whether its processes may run on other CPUs than they should, or may not on all they should."""
    pin = desired(container, plan)
    return container.started and bool(pin.cpus) and not container.confirmed(pin)


def unsettled(containers: Iterable[Container], plan: Plan) -> list[Container]:
    """All of which that is so."""
    return [each for each in containers if is_unsettled(each, plan)]


def changed(containers: Iterable[Container], plan: Plan) -> list[Container]:
    """What gets something else by now than it was told, and would heed it."""
    heeding = (each for each in containers if each.stage in HEEDING)
    return [each for each in heeding if not _is_told(each, desired(each, plan))]


def awaited(containers: Iterable[Container], plan: Plan) -> list[Container]:
    """What is not in line though it was told all that it is to be: what it was told may still be on its way."""
    told = (each for each in containers if _is_told(each, desired(each, plan)))
    return unsettled(told, plan)


def to_look_at(containers: Iterable[Container], plan: Plan) -> list[Container]:
    """What a look may show to be in line, or to have come to nothing while it was to start."""
    return [
        each
        for each in unsettled(containers, plan)
        if each.stage is Stage.STARTING or _is_told(each, desired(each, plan))
    ]


def lost(containers: Iterable[Container], plan: Plan, before: float) -> list[Container]:
    """What was told what it gets before this moment, and is not in line."""
    return [each for each in awaited(containers, plan) if each.stage is Stage.RUNNING and each.told_at <= before]


def moves(container: Container, plan: Plan) -> bool:
    """Whether the reply to a creation can take it out of the way, so that the kernel shows that by the start."""
    pin = desired(container, plan)
    if not pin.cpus or container.stage is not Stage.RUNNING or not container.legible:
        return False
    undone = any(each.cpus != pin.cpus for each in container.pending)
    in_vain = container.vain and container.told == pin
    return not undone and not in_vain


def is_underway(container: Container, now: float) -> bool:
    """Whether it has no processes, but is about to have some."""
    return not container.started and now - container.told_at < UNDERWAY


def stuck(containers: Iterable[Container], plan: Plan, now: float) -> list[Container]:
    """What is in the way of claims, and can leave it, but will not by the reply to a creation."""
    strays = (each for each in containers if each.reach & plan.claimed & ~exclusive(each, plan))
    present = (each for each in strays if (each.started or is_underway(each, now)) and desired(each, plan).cpus)
    return [each for each in present if not moves(each, plan)]


def _is_told(container: Container, pin: Pin) -> bool:
    """Whether it was told this, or was found to have it, or is left as it is."""
    found = container.told is None and not pin.mems and container.confirmed(pin)
    return not pin.cpus or container.told == pin or found
