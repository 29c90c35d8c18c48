"""The CPUs of this node: what may be given to claims, and what everyone else runs on."""

from collections.abc import Iterable
from dataclasses import dataclass

from models import Topology


@dataclass(frozen=True)
class NodeCPUs:
    """CPU numbers of one node. ``isolated``: by the kernel (``isolcpus``); claims may have them, the pool not.

    ``min_shared``: how many CPUs must stay in the shared pool whatever claims ask for.
    """

    online: frozenset[int]
    reserved: frozenset[int]
    isolated: frozenset[int] = frozenset()
    min_shared: int = 0

    @classmethod
    def of(cls, topology: Topology, isolated: Iterable[int] = (), min_shared: int | None = None) -> "NodeCPUs":
        """Those of a machine. Without reserved CPUs at least one stays shared, for the runtime reads an empty
        list of CPUs as "no change"."""
        least = (0 if topology.reserved else 1) if min_shared is None else min_shared
        return cls(topology.online, topology.reserved, frozenset(isolated) & topology.online, least)

    @property
    def allocatable(self) -> frozenset[int]:
        """Online minus reserved."""
        return self.online - self.reserved

    def pool(self, held: frozenset[int]) -> frozenset[int]:
        """What containers without a claim run on: allocatable minus held and isolated, else the reserved CPUs."""
        return self.spare(held) or self.reserved

    def spare(self, held: frozenset[int]) -> frozenset[int]:
        """The shared pool proper, which may be empty."""
        return self.allocatable - held - self.isolated
