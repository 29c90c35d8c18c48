"""All containers of the node, and what each is told: the memory that the handlers of NRI's events share."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from driver.ledger.entry import Entry, Owner, Snapshot
from driver.names import VARIABLE, variable
from driver.nri import dues, pins
from driver.nri.container import CREATION, GRACE, Container, Stage
from driver.nri.pins import NotReservedError, RefusedContainerError, desired
from driver.nri.pods import Pods
from driver.nri.sight import Pin, Sight, Update, fitting
from driver.protos import nri_pb2 as nri

log = logging.getLogger(__name__)

STAGES: Mapping[int, Stage] = {
    nri.CONTAINER_CREATED: Stage.CREATED,
    nri.CONTAINER_RUNNING: Stage.RUNNING,
    nri.CONTAINER_PAUSED: Stage.RUNNING,
}

Masks = Mapping[str, frozenset[int] | None]
"""The kernel's masks by container id; ``None`` where they cannot be read."""


def nobody_looks(uid: str) -> None:
    """For tests and tools that have no API server."""


class Registry:
    """Safe to use from any thread; nothing here waits for anything but its own short lock.

    ``later`` holds what handlers must not wait for: whoever takes it out calls it. ``look`` is called in that way,
    with the uid of a claim whose pods should be read anew because a container of another pod names it.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        own: Callable[[str, Owner], None],
        look: Callable[[str], None] = nobody_looks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot, self._own, self._look_at_pods, self._clock = snapshot, own, look, clock
        self.later: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._containers: dict[str, Container] = {}
        self._pods = Pods()
        self._repaired = 0
        self.synchronized = False

    # Events of a container's life

    def create(self, sight: Sight, masks: Masks) -> tuple[Pin, list[Update]]:
        """Let a container in. What it gets, and what others get now. Raises ``RefusedContainerError``.

        Others that are in the way may leave it by that; whether they did is seen before its first process starts.
        ``masks``: those of ``in_the_way``.
        """
        with self._lock:
            self._look(masks)
            snapshot = self._snapshot()
            claims = self._claims_of(sight, snapshot, found=False)
            container = Container(sight, Stage.CREATING, snapshot.node.online, claims)
            pin = desired(container, snapshot)
            pins.check_exclusive(container, self._stay(snapshot), snapshot)
            may = pin.cpus or container.may
            told = replace(container, may=may, told=pin, told_at=self._clock(), faithful=True)
            self._pods.run(sight.sandbox, sight.pod_uid)
            self._keep(told)
            self._remember_owner(told, snapshot)
            return pin, self._tell(self._changed(snapshot), snapshot)

    def created(self, sight: Sight) -> None:
        """The runtime has it in its store."""
        with self._lock:
            self._keep(self._known(sight, Stage.CREATED).reach_stage(Stage.CREATED))

    def start(self, sight: Sight, masks: Masks) -> None:
        """Its cgroup is made; may its first process run? Raises ``RefusedContainerError``.

        ``masks``: its own and those of ``in_the_way``.
        """
        with self._lock:
            snapshot = self._snapshot()
            self._keep(self._known(sight, Stage.STARTING).reach_stage(Stage.STARTING))
            self._look(masks)
            container = self._noted(self._containers.pop(sight.id), sight, masks.get(sight.id))
            pins.check_claims(container, snapshot)
            pins.check_exclusive(container, self._containers.values(), snapshot)
            pins.check_reach(container, self._containers.values(), snapshot)
            self._keep(container)

    def started(self, sight: Sight) -> None:
        """Its first process runs, or did: that one of short life has stopped may have been said before."""
        with self._lock:
            if sight.id in self._containers or sight.state != nri.CONTAINER_STOPPED:
                self._keep(self._known(sight, Stage.RUNNING).reach_stage(Stage.RUNNING))

    def update(self, sight: Sight, asked: frozenset[int] | None = None) -> Pin | None:
        """Somebody updates it, and perhaps asks for CPUs: what it gets. A pin without CPUs leaves it to him.
        ``None`` if nothing is known of it."""
        with self._lock:
            if sight.id not in self._containers and sight.state not in STAGES:
                return None
            container = self._known(sight, STAGES.get(sight.state, Stage.CREATED))
            container = replace(container, asked=asked or container.asked)
            pin = desired(container, self._snapshot())
            coming = pin if pin.cpus else Pin(asked or frozenset())
            told = container.tell_apart("answer", coming, self._clock())
            self._keep(told if pin.cpus else replace(told, told=container.told))
            return pin

    def updated(self, container_id: str) -> None:
        """The runtime has applied an update."""
        with self._lock:
            if container := self._containers.get(container_id):
                self._keep(container.arrived("answer"))

    def stop(self, container_id: str) -> list[Update]:
        """Its processes are gone. What others get now."""
        with self._lock:
            self._containers.pop(container_id, None)
            snapshot = self._snapshot()
            return self._tell(self._changed(snapshot), snapshot)

    def remove(self, container_id: str) -> None:
        """The runtime has forgotten it."""
        with self._lock:
            self._containers.pop(container_id, None)

    def run_pod(self, sandbox: str, uid: str) -> None:
        """A pod has a sandbox."""
        with self._lock:
            self._pods.run(sandbox, uid)

    def stop_pod(self, sandbox: str) -> None:
        """A pod's sandbox has stopped."""
        with self._lock:
            self._pods.stop(sandbox)

    def remove_pod(self, sandbox: str) -> None:
        """A pod's sandbox is forgotten."""
        with self._lock:
            self._pods.remove(sandbox)

    def synchronize(
        self, sights: Iterable[Sight], pods: Mapping[str, str], masks: Masks, *, afresh: bool
    ) -> list[Update]:
        """The runtime's whole list. What it is to change.

        ``pods``: uids by sandbox. ``masks``: of all that are listed and ``known``. ``afresh``: after an absence,
        so that what is not listed is not about to be.
        """
        with self._lock:
            snapshot = self._snapshot()
            self._pods.replace(pods)
            self.synchronized = True
            listed = [sight for sight in sights if sight.state in STAGES]
            self._drop_unlisted({sight.id for sight in listed}, masks, afresh=afresh)
            self._containers = {key: each.all_arrived(self._clock()) for key, each in self._containers.items()}
            self._look(masks)
            for sight in _by_seniority(listed, snapshot):
                self._keep(self._listed(sight, masks.get(sight.id)))
            return self._tell(self._changed(snapshot) + self._lost(snapshot, 0.0), snapshot)

    # Questions

    def in_the_way(self, sight: Sight) -> list[Container]:
        """Containers that may, as far as is known, run on CPUs of this one's claims: worth a look."""
        with self._lock:
            snapshot = self._snapshot()
            container = self._containers.get(sight.id)
            if container is None:
                uids = (key.removeprefix(VARIABLE) for key, _ in sight.variables)
                entries = (snapshot.entries.get(uid) for uid in uids)
                claims = {entry.uid: entry.cpuset for entry in entries if entry}
                container = Container(sight, Stage.CREATING, frozenset(), claims)
            return pins.in_the_way(container, self._containers.values(), snapshot)

    def known(self) -> list[Container]:
        """All containers that have not stopped."""
        with self._lock:
            return list(self._containers.values())

    def unsettled(self) -> list[Container]:
        """Those whose processes may run on other CPUs than they should, or may not on all they should."""
        with self._lock:
            return dues.unsettled(self._containers.values(), self._snapshot())

    def awaited(self) -> list[Container]:
        """Those that were told what they get, and whose processes may not have it yet."""
        with self._lock:
            return dues.awaited(self._containers.values(), self._snapshot())

    def changed(self) -> list[Container]:
        """Those that get something else by now than they were told."""
        with self._lock:
            return self._changed(self._snapshot())

    def lost(self) -> list[Container]:
        """Those that were told long ago what they get, and are not in line."""
        with self._lock:
            return self._lost(self._snapshot(), GRACE)

    def carries(self, uid: str) -> bool:
        """Whether a container carries the claim. Before the first list any may."""
        with self._lock:
            return not self.synchronized or any(uid in each.claims for each in self._containers.values())

    def names(self, uid: str) -> bool:
        """Whether a container names the claim, rightly or not. Before the first list any may."""
        key = variable(uid)
        with self._lock:
            return not self.synchronized or any(
                key == name for each in self._containers.values() for name, _ in each.sight.variables
            )

    # What the reconciler does

    def tell_due(self) -> list[Update]:
        """What the runtime is to be told now, out of the blue; ``applied`` says when it has done so."""
        with self._lock:
            snapshot = self._snapshot()
            due = self._changed(snapshot) + self._lost(snapshot, GRACE)
            return self._tell(due, snapshot, partial(Container.tell_apart, way="direct"))

    def looked(self, seen: Iterable[tuple[Container, frozenset[int] | None]]) -> None:
        """Kernel's masks, with the containers as they were before they were read."""
        with self._lock:
            for before, cpus in seen:
                if (now := self._containers.get(before.id)) is not None:
                    now = now.come_due(self._clock())
                    self._keep(now if cpus is None else now.looked(cpus, before.version))

    def applied(self, updates: Iterable[Update], failed: Collection[str]) -> None:
        """The runtime says that it has applied what it was told out of the blue, but for some containers."""
        with self._lock:
            for update in updates:
                if container := self._containers.get(update.container):
                    done = container.arrived("direct")
                    refused = update.container in failed
                    self._keep(replace(done, faithful=False) if refused else done.listed(update.pin.cpus))

    def take_repaired(self) -> int:
        """How many containers that were astray have been put right since the last time."""
        with self._lock:
            repaired, self._repaired = self._repaired, 0
            return repaired

    # Within the lock

    def _keep(self, container: Container) -> None:
        if container.astray and not dues.is_unsettled(container, self._snapshot()):
            container = replace(container, astray=False)
            self._repaired += 1
        self._containers[container.id] = container

    def _look(self, masks: Masks) -> None:
        for container_id, cpus in masks.items():
            container = self._containers.get(container_id)
            if container is not None and cpus is not None:
                self._keep(container.looked(cpus, container.version))

    def _claims_of(self, sight: Sight, snapshot: Snapshot, *, found: bool) -> pins.Claims:
        try:
            return pins.claims_of(sight, snapshot, self._rival, found=found)
        except NotReservedError as error:
            self.later.put(partial(self._look_at_pods, error.uid))
            raise

    def _rival(self, entry: Entry, owner: Owner) -> Owner | None:
        carriers = (each.owner for each in self._containers.values() if entry.uid in each.claims)
        if other := next((each for each in carriers if each != owner), None):
            return other
        recorded = entry.owner
        return recorded if recorded is not None and recorded != owner and not self._is_gone(recorded) else None

    def _is_gone(self, owner: Owner) -> bool:
        return self.synchronized and owner.pod_uid not in self._pods

    def _remember_owner(self, container: Container, snapshot: Snapshot) -> None:
        for entry in pins.held_by(container, snapshot):
            if entry.owner != container.owner:
                self.later.put(partial(self._own, entry.uid, container.owner))

    def _known(self, sight: Sight, stage: Stage) -> Container:
        """The container; one that was made while nobody told us is found as it is."""
        return self._containers.get(sight.id) or self._found(sight, stage, None)

    def _found(self, sight: Sight, stage: Stage, mask: frozenset[int] | None) -> Container:
        snapshot = self._snapshot()
        note = snapshot.node.online if sight.cpus is None else sight.cpus
        may = note if stage < Stage.RUNNING else snapshot.node.online
        container = Container(sight, stage, may if mask is None else mask, seen=mask, told_at=self._clock())
        running = stage is Stage.RUNNING
        try:
            container = replace(container, claims=self._claims_of(sight, snapshot, found=running))
            self._remember_owner(container, snapshot)
        except RefusedContainerError as error:
            container = replace(container, refusal=str(error))
            self.later.put(partial(log.warning, "runs as without a claim: %s", error))
        cpus = desired(container, snapshot).cpus
        return replace(container, astray=running and bool(cpus) and (note if mask is None else mask) != cpus)

    def _listed(self, sight: Sight, mask: frozenset[int] | None) -> Container:
        stage = STAGES[sight.state]
        container = self._containers.get(sight.id)
        if container is None:
            return self._found(sight, stage, mask)
        return self._noted(container.reach_stage(stage), sight, mask)

    def _noted(self, container: Container, sight: Sight, mask: frozenset[int] | None) -> Container:
        return container if mask is not None or sight.cpus is None else container.listed(sight.cpus)

    def _drop_unlisted(self, listed: set[str], masks: Masks, *, afresh: bool) -> None:
        for container in list(self._containers.values()):
            young = self._clock() - container.told_at < CREATION
            coming = container.stage is Stage.CREATING and young and not afresh
            alive = coming or masks.get(container.id) is not None
            if container.id not in listed and not alive:
                del self._containers[container.id]

    def _changed(self, snapshot: Snapshot) -> list[Container]:
        return dues.changed(self._containers.values(), snapshot)

    def _lost(self, snapshot: Snapshot, grace: float) -> list[Container]:
        return dues.lost(self._containers.values(), snapshot, self._clock() - grace)

    def _stay(self, snapshot: Snapshot) -> list[Container]:
        """Who will not be told to leave now."""
        leaving = {each.id for each in self._changed(snapshot)}
        return [each for each in self._containers.values() if each.id not in leaving]

    def _tell(
        self,
        containers: Iterable[Container],
        snapshot: Snapshot,
        how: Callable[..., Container] = Container.tell,
    ) -> list[Update]:
        told = list(fitting(Update(each.id, desired(each, snapshot)) for each in containers))
        for update in told:
            self._keep(how(self._containers[update.container], pin=update.pin, now=self._clock()))
        return [each for each in told if each.pin.cpus]


def _by_seniority(sights: Iterable[Sight], snapshot: Snapshot) -> list[Sight]:
    """Owners of claims first, then the oldest: if two name a claim, the first is let have it."""
    owners = {entry.owner for entry in snapshot.entries.values()}
    return sorted(sights, key=lambda each: (each.owner not in owners, each.created_at, each.id))
