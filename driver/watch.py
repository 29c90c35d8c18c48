"""Looks again and again at what could make serving wrong while the driver runs."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from driver.conditions import Condition, Conditions
from driver.ledger.entry import Snapshot
from models import format_cpuset, parse_cpuset

log = logging.getLogger(__name__)

Check = tuple[Condition, Callable[[], str | None]]
"""A condition, and what says why it holds now, or ``None``."""

ONLINE = "devices/system/cpu/online"
"""Below ``/sys``."""

PERIOD = 10.0
"""Seconds between two looks."""

ENDING = 1.0
"""Seconds that ``stop`` waits for a check that is at work."""

MOST_MISSES = 3
"""Looks in a row at which a check may fail before its condition is taken to hold."""


class Watch:
    """Runs the checks in a thread of its own; ``look`` runs them once.

    A check that fails is logged and stops neither the others nor the thread. Its condition stays as it was. It
    holds once the check has failed several times in a row, or has never worked: then nobody knows any more.
    """

    def __init__(self, checks: Iterable[Check], conditions: Conditions) -> None:
        self._checks, self._conditions = tuple(checks), conditions
        self._misses = {condition: MOST_MISSES for condition, _ in self._checks}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def look(self) -> None:
        """Set and clear the conditions."""
        for condition, check in self._checks:
            try:
                why = check()
            except Exception as error:
                self._miss(condition, error)
            else:
                self._misses[condition] = 0
                self._tell(condition, why)

    def _miss(self, condition: Condition, error: Exception) -> None:
        log.exception("%s could not be checked", condition)
        self._misses[condition] += 1
        if self._misses[condition] >= MOST_MISSES:
            self._tell(condition, f"it cannot be checked ({type(error).__name__}: {error}); see the driver's log")

    def _tell(self, condition: Condition, why: str | None) -> None:
        if why:
            self._conditions.set(condition, why)
        else:
            self._conditions.clear(condition)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(ENDING)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD):
            try:
                self.look()
            except Exception:  # Of somebody who listens to conditions.
                log.exception("the node could not be looked at")


def online_now(sysfs: Path) -> frozenset[int]:
    """CPUs that the kernel has up, of a ``/sys`` tree."""
    return parse_cpuset((sysfs / ONLINE).read_text())


def isolated(sysfs: Path) -> frozenset[int]:
    """CPUs that the kernel was told to keep its scheduler off (``isolcpus``, see kernel-parameters)."""
    try:
        return parse_cpuset((sysfs / "devices/system/cpu/isolated").read_text())
    except (OSError, ValueError):
        return frozenset()


def reserved_offline(reserved: frozenset[int], online: Callable[[], frozenset[int]]) -> str | None:
    """Why the reserved CPUs are not what was configured."""
    missing = reserved - online()
    return f"reserved CPUs {format_cpuset(missing)} are not online; change reservedCPUs" if missing else None


def topology_changed(before: frozenset[int], now: frozenset[int], ledger: Snapshot) -> str | None:
    """Why the machine is not the one that devices were published for and claims were placed on."""
    if lost := ledger.held - now:
        return f"CPUs {format_cpuset(lost)} are held by claims but not online; bring them up, or remove the pods"
    if clash := ledger.held & ledger.node.reserved:
        return f"CPUs {format_cpuset(clash)} are held by claims and reserved now; remove the pods that hold them"
    if now != before:
        changed = format_cpuset(now ^ before)
        return f"CPUs {changed} went up or down since the driver began; restart the driver to publish it"
    return None


def unwritable(folders: Sequence[Path]) -> str | None:
    """Which of the folders is missing or read-only. Nothing is written: the runtime watches some of them."""
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} is missing or cannot be written to; mend or mount it"
    return None
