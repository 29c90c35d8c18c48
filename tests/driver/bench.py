"""A bench for ``driver.prepare``: real ledger, CDI files and greedy solver in a folder, the rest of the node as
doubles."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driver.call import Call, always
from driver.cdi import CDI
from driver.claims.view import ClaimView
from driver.claims.wish import wish
from driver.conditions import Conditions
from driver.config import Config
from driver.devices.devices import devices_of
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.ledger.files import Files
from driver.node import NodeCPUs
from driver.ports import ClaimRef, Document, Solver
from driver.prepare import LOOKS, Preparer
from driver.recover import recover
from driver.solving.client import WorkerSolver
from models import Topology
from tests.driver.claims.documents import claim as claim_document
from tests.driver.claims.documents import result
from tests.driver.recorder import Recorder
from topologies import synthetic

MACHINE = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""32 CPUs on 4 NUMA nodes."""


class Shelf:
    """Claims, as an API server would give them. ``answers``: whether it is there; ``patience``: seconds that each
    who asked would have waited; ``meanwhile``: happens between a question and its answer."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], Document] = {}
        self.answers, self.asked = True, 0
        self.patience: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def get(self, namespace: str, name: str, patience: float = 15.0) -> Document | None:
        self.asked += 1
        self.patience.append(patience)
        if not self.answers:
            raise RefusedError("ApiAway", "nobody answers")
        found = self.documents.get((namespace, name))
        self.meanwhile()
        return found


class Containers:
    """A runtime that is asked. ``carried``: uids of claims that have a container. ``notices``: whether it takes
    note of changes."""

    def __init__(self) -> None:
        self.carried: set[str] = set()
        self.changes = self.waits = 0
        self.settles = self.notices = True

    def changed(self) -> None:
        self.changes += 1

    def knows(self, timeout: float) -> bool:
        return self.notices

    def settle(self, timeout: float) -> bool:
        self.waits += 1
        return self.settles

    def carries(self, uid: str) -> bool:
        return uid in self.carried


@dataclass
class Told:
    """Keeps the events."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def tell(self, claim: ClaimRef, reason: str, message: str, *, warning: bool = True) -> None:
        self.events.append((claim.uid, reason, message))


class Direct(Preparer):
    """Calls that are made here and now: they wait for locks in this thread, and for nothing else."""

    def prepare(self, ref: ClaimRef, wanted: Callable[[], bool] = always) -> Entry:
        call = Call(ref, wanted)
        with self.reported(call):
            for _ in range(LOOKS):
                look = self.look(call)
                call.view = look.view
                if entry := self.place(call, look):
                    return entry
            raise RefusedError("Busy", "it changes again and again")

    def unprepare(self, ref: ClaimRef, wanted: Callable[[], bool] = always) -> None:
        call = Call(ref, wanted)
        with self.reported(call):
            self.free(call)


class Bench:
    """One node. ``restart`` is what happens after the driver's process has gone, however it went."""

    def __init__(
        self,
        folder: Path,
        topology: Topology = MACHINE,
        *,
        isolated: frozenset[int] = frozenset(),
        solver: Solver | None = None,
        sync: Callable[[int], None] = os.fsync,
        shows: bool = False,
        **settings: Any,
    ) -> None:
        self.folder, self.topology, self.sync, self.shows = folder, topology, sync, shows
        self.config = Config.model_validate({"groupBy": "machine", **settings})
        reserved = topology.model_copy(update={"reserved": self.config.reserved_cpus})
        self.node = NodeCPUs.of(reserved, isolated, self.config.min_shared_cpus)
        self.devices = devices_of(self.config, topology, self.node)
        self.shelf, self.containers, self.told, self.recorder = Shelf(), Containers(), Told(), Recorder()
        self.conditions = Conditions()
        self.behind: list[str] = []
        self.busy = 40.0
        self.greedy = WorkerSolver(reserved, 0.0, self.recorder)
        self.solver = solver or self.greedy
        self.restart()

    def restart(self) -> None:
        self.cdi = CDI(self.folder / "cdi", self.sync, self.folder / "metadata")
        self.ledger = Ledger.open(self.node, Files(self.folder / "ledger", self.sync))
        self.ledger.listen(self.containers.changed)
        recover(self.ledger, self.cdi)
        self.preparer = Direct(
            topology=self.topology,
            claims=self.shelf,
            ledger=self.ledger,
            cdi=self.cdi,
            solver=self.solver,
            runtime=self.containers,
            teller=self.told,
            observer=self.recorder,
            conditions=self.conditions,
            read=lambda document, ref: ClaimView.read(
                document, ref, counted=self.config.cpu_device_mode == "grouped"
            ),
            make_wish=lambda view: wish(view, self.config, self.devices, self.node, "node-1"),
            show=lambda view: self.devices.shown(grant.device for grant in view.grants) if self.shows else {},
            greedy=self.greedy,
            behind=self.behind.append,
            busy=self.busy,
        )

    def claim(self, uid: str, *cpus: int, device: str = "cpudevmachine", **more: Any) -> ClaimRef:
        """A claim with requests for so many CPUs each; allocated anew if it is there already."""
        ref = ClaimRef(uid, "default", f"claim-{uid}")
        results = [result(f"r{i}", device, str(count)) for i, count in enumerate(cpus)]
        document = claim_document(*results, **more)
        document["metadata"] = {"uid": uid, "namespace": ref.namespace, "name": ref.name}
        self.shelf.documents[ref.namespace, ref.name] = document
        return ref

    def prepare(self, ref: ClaimRef) -> frozenset[int]:
        return self.preparer.prepare(ref).cpuset

    def refusal(self, ref: ClaimRef) -> tuple[str, str]:
        """Reason and message with which the claim is refused."""
        try:
            self.preparer.prepare(ref)
        except RefusedError as error:
            return error.reason, error.message
        raise AssertionError("it was prepared")

    @property
    def held(self) -> dict[str, frozenset[int]]:
        return {uid: entry.cpuset for uid, entry in self.ledger.snapshot.entries.items()}

    def on_disk(self) -> list[str]:
        """Names of all files in the ledger's and the CDI folder."""
        return sorted(path.name for path in self.folder.rglob("*") if not path.is_dir())

    def check(self) -> None:
        """What must be true whenever no call is at work."""
        held = list(self.held.values())
        assert sum(map(len, held)) == len(frozenset().union(*held)), "a CPU is held twice"
        assert self.ledger.snapshot.held == frozenset().union(*held)
        assert sorted(self.cdi.uids()) == sorted(self.held)
        assert all(self.cdi.stands(entry) for entry in self.ledger.snapshot.entries.values())
        found = Files(self.folder / "ledger").read()
        assert found.aside == ()
        assert found.entries == dict(self.ledger.snapshot.entries)
        assert len(self.on_disk()) == (4 if self.shows else 2) * len(self.held)
