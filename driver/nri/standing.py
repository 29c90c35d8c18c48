"""How the driver fares with the container runtime, whichever of its processes is the one that says so."""

import threading
import time
from collections.abc import Callable

from driver.conditions import Condition, Conditions
from driver.nri.messages import State

AWAY_AFTER = 3.0
"""Seconds without a process that is connected after which new claims are refused. Another one mostly comes within
half a second, and until then a Prepare waits; a refusal would cost its pod a minute."""

ENDED = "the process that answers the container runtime has ended, and no other one is connected yet"


class Standing:
    """Sets and clears conditions as the process has them; told by one thread.

    ``here``: whether there is a process that is connected and has had the runtime's list. ``taking_over``: whether
    one has ended, and the next has not come to where that one was.
    """

    def __init__(self, conditions: Conditions, clock: Callable[[], float] = time.monotonic) -> None:
        self.here = threading.Event()
        self._conditions, self._clock = conditions, clock
        self._state = State(here=False)
        self._ended_at: float | None = None
        self._reported: dict[Condition, str] = {}

    @property
    def taking_over(self) -> bool:
        """See above."""
        return self._ended_at is not None

    def ended(self) -> None:
        """The process has ended. What it has reported holds until the next one knows better."""
        if self._ended_at is None:
            self._ended_at = self._clock()
        self._state = State(here=False)
        self.here.clear()

    def take(self, state: State) -> None:
        """What the process reports."""
        self._state = state
        if state.here or "NRIAway" in state.conditions:
            self._ended_at = None
        self.judge()
        (self.here.set if state.here else self.here.clear)()

    def judge(self) -> None:
        """Have the conditions as they should be now."""
        now = {**self._kept(), **self._state.conditions}
        for condition in self._reported.keys() - now.keys():
            self._conditions.clear(condition)
        for condition, message in now.items():
            self._conditions.set(condition, message)
        self._reported = now

    def _kept(self) -> dict[Condition, str]:
        if self._ended_at is None:
            return {}
        is_long = self._clock() - self._ended_at > AWAY_AFTER
        return {**self._reported, "NRIAway": ENDED} if is_long else self._reported
