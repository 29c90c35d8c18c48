"""One claim as the ledger keeps it, and the ledger as its readers see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from driver.devices.device import Value
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from models import Allocation, CPUSet
from models.allocation import Engine


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grant(_Value):
    """One result of a claim's allocation that is ours: as the scheduler wrote it, and as the kubelet is told.

    ``request`` may name an alternative (``r/sub``); ``cpus`` is what it consumes of the device.
    """

    request: str
    pool: str
    device: str
    share_id: str | None = None
    cpus: int = Field(ge=1)


class Owner(_Value):
    """The one container that carries a claim, by names that outlive its restarts."""

    pod_uid: str
    container: str


class Shown(_Value):
    """What containers of a claim are shown of one of its devices (``driver.metadata``): as it was published when
    the claim was prepared. ``cpus``: of the device, whoever has them."""

    cpus: CPUSet
    attributes: dict[str, Value] = Field(default_factory=dict)


class Entry(_Value):
    """A claim that holds CPUs. Its file is named after ``uid``.

    ``fingerprint``: of the results and configs it was solved from. ``mems``: NUMA nodes that its container's
    memory is bound to, empty for no binding. ``pods``: uids of the pods that may carry it (the claim's
    ``status.reservedFor``); ``pod_names``: their names, by uid, as far as they are known: entries that version
    0.1.0 wrote have none. ``pod_claim``: what the pod's spec calls a claim that was made from a template.
    ``shown``: by name of the device; empty if containers are not shown their devices.
    ``adopted``: taken over from another driver's CDI file; namespace, name and pods are unknown (empty) until
    the API server or the kubelet names them.
    """

    api_version: Literal["cpusat/v1"] = "cpusat/v1"
    kind: Literal["LedgerEntry"] = "LedgerEntry"
    uid: str
    namespace: str = ""
    name: str = ""
    fingerprint: str = ""
    cpuset: CPUSet
    mems: CPUSet = frozenset()
    grants: tuple[Grant, ...] = ()
    pods: frozenset[str] = frozenset()
    pod_names: dict[str, str] = Field(default_factory=dict)
    pod_claim: str = ""
    shown: dict[str, Shown] = Field(default_factory=dict)
    owner: Owner | None = None
    allocations: tuple[Allocation, ...] = ()
    engine: Engine | None = None
    adopted: bool = False

    @property
    def title(self) -> str:
        """The claim as people know it."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid

    @property
    def chosen_by(self) -> str:
        """What chose its CPUs: an engine, ``given`` (the claim itself) or ``adopted`` (another driver)."""
        return "adopted" if self.adopted else self.engine or "given"

    @property
    def carriers(self) -> Sequence[str]:
        """The pod that carries the claim; while none does, the pods that may. By namespace and name where those
        are known, else by uid."""
        return [self.pod_title(self.owner.pod_uid)] if self.owner else sorted(map(self.pod_title, self.pods))

    def pod_title(self, uid: str) -> str:
        """A pod as people know it. It is in the claim's namespace."""
        name = self.pod_names.get(uid)
        return f"{self.namespace}/{name}" if name else uid

    @field_serializer("pods", when_used="json")
    def _in_order(self, pods: frozenset[str]) -> list[str]:
        """So that equal entries are equal files, whichever process writes them."""
        return sorted(pods)


@dataclass(frozen=True)
class Snapshot:
    """The ledger at one moment, immutable, to be read without waiting.

    ``quarantined``: CPUs that torn or foreign files of the ledger name; nobody gets them until the files are dealt
    with. ``version``: counts the ledger's changes, so that the newer of two snapshots has the higher one.
    ``foreign``: what the kubelet's CPU manager has given away.
    """

    node: NodeCPUs
    entries: Mapping[str, Entry]
    quarantined: frozenset[int] = frozenset()
    version: int = 0
    foreign: Foreign = field(default_factory=Foreign)

    @cached_property
    def claimed(self) -> frozenset[int]:
        """CPUs of all claims. They stay theirs, whoever else is given them."""
        return frozenset[int]().union(*(entry.cpuset for entry in self.entries.values()))

    @cached_property
    def held(self) -> frozenset[int]:
        """CPUs of all claims, and of files that could not be read."""
        return self.quarantined | self.claimed

    @cached_property
    def taken(self) -> frozenset[int]:
        """CPUs that are neither in the shared pool nor may be given to a claim."""
        return self.held | self.foreign.given

    @cached_property
    def free(self) -> frozenset[int]:
        """Allocatable minus taken."""
        return self.node.allocatable - self.taken

    @cached_property
    def pool(self) -> frozenset[int]:
        """What containers without a claim run on; empty only if claims have all there is, files in quarantine name
        it, or it is down. Such files keep nobody off reserved CPUs, which no claim is given."""
        reserved = self.node.reserved - self.claimed - self.node.offline
        return self.node.pool(self.taken) or self.node.pool(self.held) or reserved
