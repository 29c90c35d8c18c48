"""Looks again and again at what could make serving wrong while the driver runs."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from driver.conditions import Condition, Conditions
from driver.ledger.entry import Snapshot
from models import CpusatError, format_cpuset, parse_cpuset

log = logging.getLogger(__name__)

Check = tuple[Condition, Callable[[], str | None]]
"""A condition, and what says why it holds now, or ``None``."""

PERIOD = 10.0
"""Seconds between two looks."""


class Watch:
    """Runs the checks in a thread of its own; ``look`` runs them once."""

    def __init__(self, checks: Iterable[Check], conditions: Conditions) -> None:
        self._checks, self._conditions = tuple(checks), conditions
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def look(self) -> None:
        """Set and clear the conditions."""
        for condition, check in self._checks:
            if why := check():
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
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD):
            try:
                self.look()
            except (OSError, ValueError, CpusatError):
                log.exception("the node could not be looked at")


def online_now(sysfs: Path) -> frozenset[int]:
    """CPUs that the kernel has up, of a ``/sys`` tree."""
    return parse_cpuset((sysfs / "devices/system/cpu/online").read_text())


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
