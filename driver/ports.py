"""What the parts of the driver want of each other, so that each can be tested against a double."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from driver.errors import Reason
from driver.ledger.entry import Entry, Grant
from models import Request, Result

Stage = Literal["get", "wait", "solve", "write", "settle"]
"""What a Prepare spends its time on: reading the claim from the API server, waiting until its CPUs can come free,
choosing them, writing the claim's files, waiting for the masks of neighbours."""

Document = dict[str, Any]
"""An object of the API server, as JSON has it. Nothing in it can be trusted but its being JSON."""


@dataclass(frozen=True)
class ClaimRef:
    """A ResourceClaim by its names; namespace and name may be empty where only the uid is known."""

    uid: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})" if self.name else self.uid


class Claims(Protocol):
    """Where ResourceClaims are read."""

    def get(self, namespace: str, name: str, patience: float = 15.0) -> Document | None:
        """The claim, ``None`` if there is none. ``patience``: seconds after which this ends, whatever happens.

        Raises ``RefusedError("ApiAway")`` when nobody answers in time."""


class Runtime(Protocol):
    """The container runtime, as far as masks are concerned."""

    def changed(self) -> None:
        """The ledger has a new snapshot: bring every container's mask in line, soon. Returns at once."""

    def knows(self, timeout: float) -> bool:
        """Wait until the runtime is answered by the ledger as it is now, at most so long (seconds). Whether it is.
        Before that no claim that has changed may be answered, for its container would be taken for another's."""

    def settle(self, timeout: float) -> bool:
        """Wait until nobody is in the way of a claim whom the creation of its container would not move out of
        it, at most so long (seconds). Whether that is so, which it mostly is at once. A claim's own container is
        held back as long as others are in its way."""

    def carries(self, uid: str) -> bool:
        """Whether a container that is not stopped carries the claim, as far as is known."""


class Solver(Protocol):
    """Chooses CPUs. Never raises for lack of time: then the answer is greedy's."""

    def solve(self, requests: Sequence[Request], free: frozenset[int]) -> Result:
        """CPUs of the node's machine for the requests, together, out of the free ones. Raises ``BadInputError``
        for a request that means nothing there, such as ``near`` a device that is not."""


class Teller(Protocol):
    """Tells people: Kubernetes events, without repetition. Returns at once."""

    def tell(self, claim: ClaimRef, reason: Reason | str, message: str, *, warning: bool = True) -> None:
        """An event on the claim."""


class Reporter(Protocol):
    """Shows in the claims themselves what became of them. Returns at once (``driver.cluster.status``)."""

    def prepared(self, entry: Entry) -> None:
        """The claim has its CPUs."""

    def refused(self, ref: ClaimRef, grants: Iterable[Grant], reason: Reason, message: str) -> None:
        """The claim, which was allocated so, does not get its CPUs now."""


class MaskObserver(Protocol):
    """Counts what happens to masks."""

    def repaired(self, containers: int) -> None:
        """Masks that were not as they should be have been put right."""


class Observer(MaskObserver, Protocol):
    """Counts what happens (``driver.metrics.Metrics``)."""

    def prepared(self, engine: str, seconds: float, cpus: int) -> None:
        """A claim got so many CPUs, by ``dp``, ``cpsat``, ``greedy`` or ``given``, or again (``ledger``)."""

    def stage(self, name: Stage, seconds: float) -> None:
        """A Prepare has spent so long on one of its stages. Each stage that a Prepare went through counts once."""

    def unprepared(self) -> None:
        """A claim that held CPUs has been released, by the kubelet or because it was gone."""

    def refused(self, reason: Reason) -> None:
        """A Prepare or an Unprepare was refused."""

    def solved(self, engine: str, seconds: float) -> None:
        """The solver has answered."""

    def fell_back(self, why: str) -> None:
        """Greedy stood in for CP-SAT: ``timeout``, ``crash``, ``not_ready``, ``defect``."""
