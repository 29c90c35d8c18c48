"""Why the driver refuses: a reason for programs, a message for people."""

from typing import Literal

from models import CpusatError

Reason = Literal[
    "BadConfig",
    "BadClaim",
    "ClaimGone",
    "ClaimChanged",
    "NotPlaceable",
    "NotDecided",
    "NoSharedCPU",
    "Held",
    "AdminAccess",
    "Degraded",
    "Busy",
    "ApiAway",
    "RuntimeAway",
    "Disk",
    "Defect",
]
"""What metrics count and events carry.

``Held``: CPUs that were asked for by number are another claim's. ``Busy``: an earlier call about the same claim
is at work, or nobody waits for this one any more. ``RuntimeAway``: who answers the container runtime does not know
the claim yet; it keeps its CPUs.
"""


class RefusedError(CpusatError):
    """A claim cannot be prepared or unprepared now. ``message`` says what is wrong and the way out."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(f"{reason}: {message}")
