"""The kubelet's static CPU manager beside us, seen by its updates. ``driver.foreign`` knows what it has given."""

import time
from collections.abc import Callable

from driver.conditions import Conditions
from driver.nri.sight import Sight, text_of

CONTAINERS, TWICE_WITHIN = 3, 60.0
"""So many containers, or two updates of one within so many seconds, are no accident."""

QUIET = 300.0
"""Seconds without such an update after which it is gone."""


def nobody_asks() -> None:
    """For tests and tools without a kubelet."""


class StaticManager:
    """Counts updates that would give a container other CPUs than ours. Called by one thread at a time.

    ``suspect`` is called when somebody other than we names CPUs for a container: the kubelet should be asked.
    """

    def __init__(
        self,
        conditions: Conditions,
        suspect: Callable[[], None] = nobody_asks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conditions, self.suspect, self._clock = conditions, suspect, clock
        self._last: dict[str, float] = {}

    def asked(self, sight: Sight, cpus: int, kept: int) -> None:
        """Somebody wants the container on these CPUs, and it is kept on those."""
        self.suspect()
        if cpus != kept:
            self.noticed(sight, cpus)

    def noticed(self, sight: Sight, cpus: int) -> None:
        """Somebody wants the container on these CPUs."""
        now = self._clock()
        before = self._last.get(sight.id, now - TWICE_WITHIN - 1)
        self._last = {name: when for name, when in self._last.items() if now - when < QUIET} | {sight.id: now}
        if len(self._last) >= CONTAINERS or now - before <= TWICE_WITHIN:
            self._conditions.set(
                "StaticCPUManager",
                f"somebody else sets CPUs of containers (last: {sight} to {text_of(cpus)}); our masks "
                "are put back each time; run the kubelet with cpuManagerPolicy: none",
            )

    def look(self) -> None:
        """Take it back after a quiet time."""
        if self._last and self._clock() - max(self._last.values()) >= QUIET:
            self._last = {}
            self._conditions.clear("StaticCPUManager")
