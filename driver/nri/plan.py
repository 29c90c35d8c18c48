"""What the ledger means for masks: one snapshot, as bit masks, worked out once.

Sets of CPUs and memory nodes are bit masks throughout ``driver.nri``: bit n stands for number n. Thousands of
containers are compared at every change, and a mask of 512 CPUs takes nanoseconds where a set takes microseconds.
"""

from dataclasses import dataclass

from driver.ledger.entry import Entry, Snapshot
from driver.nri.sight import Pin, Sight
from models import to_mask, union


@dataclass(frozen=True)
class Held:
    """A claim in the ledger, with its CPUs and memory nodes as masks."""

    entry: Entry
    cpus: int
    mems: int


class Plan:
    """A snapshot of the ledger. ``pool``: what containers without a claim get; no CPUs if there are none left.

    ``claims``: all claims by uid. ``claimed``: CPUs of all of them; ``held``: those and the quarantined ones.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.online = to_mask(snapshot.node.online)
        self.pool = Pin(to_mask(snapshot.pool))
        self.claims = {
            uid: Held(entry, to_mask(entry.cpuset), to_mask(entry.mems)) for uid, entry in snapshot.entries.items()
        }
        self.claimed = union(each.cpus for each in self.claims.values())
        self.held = self.claimed | to_mask(snapshot.quarantined)
        self._offline = to_mask(snapshot.node.offline)

    def of_kubelet(self, sight: Sight) -> int:
        """CPUs that the kubelet's CPU manager has given a container."""
        foreign = self.snapshot.foreign
        return to_mask(foreign.of(sight.pod, sight.pod_uid, sight.name)) if foreign.cpus else 0

    def up(self, cpus: int) -> int:
        """Those of a claim's CPUs that can run anything; all of them where none can, which the kernel refuses."""
        return cpus & ~self._offline or cpus
