"""Which containers are not in line with the ledger, and which must be told so: decisions without memory."""

from collections.abc import Iterable

from driver.ledger.entry import Snapshot
from driver.nri.container import Container, Stage
from driver.nri.pins import desired
from driver.nri.sight import Pin

HEEDING = (Stage.CREATED, Stage.RUNNING)
"""Stages at which the runtime heeds an update."""


def is_unsettled(container: Container, snapshot: Snapshot) -> bool:
    """Whether its processes may run on other CPUs than they should, or may not on all they should."""
    pin = desired(container, snapshot)
    return container.started and bool(pin.cpus) and not container.confirmed(pin)


def unsettled(containers: Iterable[Container], snapshot: Snapshot) -> list[Container]:
    """All of which that is so."""
    return [each for each in containers if is_unsettled(each, snapshot)]


def changed(containers: Iterable[Container], snapshot: Snapshot) -> list[Container]:
    """What gets something else by now than it was told, and would heed it."""
    heeding = (each for each in containers if each.stage in HEEDING)
    return [each for each in heeding if not _is_told(each, desired(each, snapshot))]


def awaited(containers: Iterable[Container], snapshot: Snapshot) -> list[Container]:
    """What is not in line though it was told all that it is to be: what it was told may still be on its way."""
    told = (each for each in containers if _is_told(each, desired(each, snapshot)))
    return unsettled(told, snapshot)


def lost(containers: Iterable[Container], snapshot: Snapshot, before: float) -> list[Container]:
    """What was told what it gets before this moment, and is not in line."""
    told = (each for each in containers if each.stage is Stage.RUNNING and each.told_at <= before)
    return [each for each in told if _is_told(each, desired(each, snapshot)) and is_unsettled(each, snapshot)]


def _is_told(container: Container, pin: Pin) -> bool:
    """Whether it was told this, or was found to have it, or is left as it is."""
    found = container.told is None and not pin.mems and container.confirmed(pin)
    return not pin.cpus or container.told == pin or found
