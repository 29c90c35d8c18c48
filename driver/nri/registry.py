"""All containers of the node, and what each is told: the memory that the handlers of NRI's events share."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from driver.ledger.entry import Entry, Owner, Snapshot
from driver.nri import dues, pins
from driver.nri.container import CREATION, GRACE, Container, Stage
from driver.nri.containers import Containers
from driver.nri.pins import NotReservedError, RefusedContainerError, desired
from driver.nri.plan import Plan
from driver.nri.pods import Pods
from driver.nri.sight import Pin, Sight, Update, fitting
from driver.protos import nri_pb2 as nri

log = logging.getLogger(__name__)

STAGES: Mapping[int, Stage] = {
    nri.CONTAINER_CREATED: Stage.CREATED,
    nri.CONTAINER_RUNNING: Stage.RUNNING,
    nri.CONTAINER_PAUSED: Stage.RUNNING,
}

PACE = 0.02
"""Seconds that the runtime takes for an update, one after the other (measured: 14 ms with runc)."""

Masks = Mapping[str, int | None]
"""The kernel's masks by container id: ``None`` where there is none to be read, nothing where nobody has looked."""


def nobody_looks(uid: str) -> None:
    """For tests and tools that have no API server."""


class Registry:
    """Safe to use from any thread; nothing here waits for anything but its own short lock, or reads a file.

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
        self._containers, self._pods = Containers(), Pods()
        self._last_plan: Plan | None = None
        self._repaired = 0
        self.synchronized = False

    # Events of a container's life

    def create(self, sight: Sight, masks: Masks) -> tuple[Pin, list[Update]]:
        """Let a container in. What it gets, and what others get now. Raises ``RefusedContainerError``.

        Others that are in the way may leave it by that; whether they did is seen before its first process starts.
        ``masks``: those of ``doubtful``.
        """
        with self._lock:
            self._look(masks)
            plan, now = self._plan(), self._clock()
            container = Container(sight, Stage.CREATING, plan.online, self._claims_of(sight, plan, found=False))
            pins.check_pool(container, plan)
            ways = [each for each in self._ways(container, plan) if each.started or dues.is_underway(each, now)]
            pins.check_exclusive(container, [each for each in ways if not dues.moves(each, plan)], plan)
            pin = desired(container, plan)
            self._pods.run(sight.sandbox, sight.pod_uid)
            told = replace(container, may=pin.cpus, told=pin, told_at=now, faithful=True)
            self._keep(told)
            self._remember_owner(told, plan)
            return pin, self._tell(ways + self._changed(plan), plan)

    def created(self, sight: Sight) -> None:
        """The runtime has it in its store."""
        with self._lock:
            self._keep(self._known(sight, Stage.CREATED).reach_stage(Stage.CREATED))

    def start(self, sight: Sight, masks: Masks) -> None:
        """Its cgroup is made; may its first process run? Raises ``RefusedContainerError``.

        ``masks``: its own and those of ``in_the_way``.
        """
        with self._lock:
            plan = self._plan()
            self._keep(self._known(sight, Stage.STARTING).reach_stage(Stage.STARTING))
            self._look(masks)
            container = self._reconsidered(self._noted(sight, masks), plan)
            self._containers.drop(sight.id)
            pins.check_claims(container, plan)
            pins.check_exclusive(container, self._started_ways(container, plan), plan)
            pins.check_reach(container, self._containers.all_carriers(), plan)
            self._keep(container)

    def started(self, sight: Sight) -> None:
        """Its first process runs, or did: that one of short life has stopped may have been said before."""
        with self._lock:
            if sight.id in self._containers or sight.state != nri.CONTAINER_STOPPED:
                self._keep(self._known(sight, Stage.RUNNING).reach_stage(Stage.RUNNING))

    def update(self, sight: Sight, asked: int | None = None) -> Pin | None:
        """Somebody updates it, and perhaps asks for CPUs: what it gets. A pin without CPUs leaves it to him.
        ``None`` if nothing is known of it."""
        with self._lock:
            if sight.id not in self._containers and sight.state not in STAGES:
                return None
            container = self._known(sight, STAGES.get(sight.state, Stage.CREATED))
            container = replace(container, asked=asked or container.asked)
            pin = self._answer(container, self._plan())
            coming = pin if pin.cpus else Pin(asked or 0)
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
            self._containers.drop(container_id)
            plan = self._plan()
            return self._tell(self._changed(plan), plan)

    def remove(self, container_id: str) -> None:
        """The runtime has forgotten it."""
        with self._lock:
            self._containers.drop(container_id)

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

        ``pods``: uids by sandbox. ``masks``: those of ``to_read``. ``afresh``: after an absence, so that what is
        not listed is not about to be.
        """
        with self._lock:
            plan = self._plan()
            self._pods.replace(pods)
            self.synchronized = True
            listed = [sight for sight in sights if sight.state in STAGES]
            self._drop_unlisted({sight.id for sight in listed}, masks, afresh=afresh)
            for container in [each for each in self._containers if each.pending]:
                self._keep(container.all_arrived(self._clock()))
            self._look(masks)
            for sight in _by_seniority(listed, plan):
                self._keep(self._listed(sight, masks))
            return self._tell(self._changed(plan) + self._lost(plan, float("inf")), plan)

    # What is worth a look

    def doubtful(self, sight: Sight) -> dict[str, str]:
        """Cgroups of containers that were told to leave the CPUs of this one's claims, and may not have: by id."""
        return {each.id: each.sight.cgroup for each in self._others(sight, told=True)}

    def in_the_way(self, sight: Sight) -> dict[str, str]:
        """Cgroups of containers that may, as far as is known, run on CPUs of this one's claims: by id."""
        return {each.id: each.sight.cgroup for each in self._others(sight, told=False)}

    def to_read(self, sights: Iterable[Sight], *, afresh: bool) -> dict[str, str]:
        """Cgroups by id whose masks a list needs: all after an absence; else those of containers that may still be
        on their way to what they were told, or that only one of the two sides knows."""
        with self._lock:
            listed = {sight.id: sight.cgroup for sight in sights}
            known = {each.id: each.sight.cgroup for each in self._containers}
            if afresh:
                return known | listed
            plan = self._plan()
            awaited = (each.id for each in dues.awaited(self._containers.loose(plan), plan))
            either = known | listed
            return {each: either[each] for each in (*awaited, *(known.keys() ^ listed.keys()))}

    # Questions

    def known(self) -> list[Container]:
        """All containers that have not stopped."""
        with self._lock:
            return list(self._containers)

    def unsettled(self) -> list[Container]:
        """Those whose processes may run on other CPUs than they should, or may not on all they should."""
        with self._lock:
            plan = self._plan()
            return dues.unsettled(self._containers.loose(plan), plan)

    def awaited(self) -> list[Container]:
        """Those that were told what they get, and whose processes may not have it yet."""
        with self._lock:
            plan = self._plan()
            return dues.awaited(self._containers.loose(plan), plan)

    def to_look_at(self) -> list[Container]:
        """Those whose masks the kernel may show to be in line by now, or that may have come to nothing."""
        with self._lock:
            plan = self._plan()
            return dues.to_look_at(self._containers.loose(plan), plan)

    def stuck(self) -> list[Container]:
        """Those in the way of claims that the reply to a creation would not move."""
        with self._lock:
            plan = self._plan()
            return dues.stuck(self._containers.loose(plan), plan, self._clock())

    def changed(self) -> list[Container]:
        """Those that get something else by now than they were told."""
        with self._lock:
            return self._changed(self._plan())

    def lost(self) -> list[Container]:
        """Those that were told long ago what they get, and are not in line."""
        with self._lock:
            return self._lost(self._plan(), self._clock() - GRACE)

    def carries(self, uid: str) -> bool:
        """Whether a container carries the claim. Before the first list any may."""
        with self._lock:
            return not self.synchronized or bool(self._containers.carriers(uid))

    def names(self, uid: str) -> bool:
        """Whether a container names the claim, rightly or not. Before the first list any may."""
        with self._lock:
            return not self.synchronized or self._containers.names(uid)

    # What the reconciler does

    def tell_due(self) -> list[Update]:
        """What the runtime is to be told now, out of the blue; ``applied`` says when it has done so."""
        with self._lock:
            plan = self._plan()
            due = self._changed(plan) + self._lost(plan, self._clock() - GRACE)
            return self._tell(due, plan, partial(Container.tell_apart, way="direct"))

    def looked(self, seen: Collection[tuple[Container, int | None]]) -> None:
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

    def reconsider(self) -> None:
        """Let those have their claims that run without, for the ledger did not know then that they may."""
        with self._lock:
            plan = self._plan()
            for container in [each for each in self._containers if each.refusal]:
                anew = self._reconsidered(container, plan)
                if not self._started_ways(anew, plan):
                    self._keep(anew)

    def take_repaired(self) -> int:
        """How many containers that were astray have been put right since the last time."""
        with self._lock:
            repaired, self._repaired = self._repaired, 0
            return repaired

    # Within the lock

    def _plan(self) -> Plan:
        snapshot = self._snapshot()
        if self._last_plan is None or snapshot is not self._last_plan.snapshot:
            self._last_plan = Plan(snapshot)
        return self._last_plan

    def _keep(self, container: Container) -> None:
        if container.astray and not dues.is_unsettled(container, self._plan()):
            container = replace(container, astray=False)
            self._repaired += 1
        if self._containers.get(container.id) is not container:
            self._containers.put(container)

    def _look(self, masks: Masks) -> None:
        for container_id, cpus in masks.items():
            container = self._containers.get(container_id)
            if container is not None and cpus is not None:
                self._keep(container.looked(cpus, container.version))

    def _ways(self, container: Container, plan: Plan) -> list[Container]:
        """Who may run on its claims' CPUs. Nobody does who is in line."""
        return pins.in_the_way(container, self._containers.loose(plan), plan)

    def _started_ways(self, container: Container, plan: Plan) -> list[Container]:
        return [each for each in self._ways(container, plan) if each.started]

    def _others(self, sight: Sight, *, told: bool) -> list[Container]:
        with self._lock:
            plan = self._plan()
            container = self._containers.get(sight.id)
            if container is None:
                claims = {uid: plan.claims[uid].cpus for uid in sight.named if uid in plan.claims}
                container = Container(sight, Stage.CREATING, 0, claims)
            ways = self._started_ways(container, plan)
            return [each for each in ways if each.told == desired(each, plan)] if told else ways

    def _claims_of(self, sight: Sight, plan: Plan, *, found: bool) -> pins.Claims:
        try:
            return pins.claims_of(sight, plan, self._rival, found=found)
        except NotReservedError as error:
            self.later.put(partial(self._look_at_pods, error.uid))
            raise

    def _rival(self, entry: Entry, sight: Sight) -> Owner | None:
        for each in self._containers.carriers(entry.uid):
            if not each.sight.replaces(sight):
                return each.sight.owner
        recorded = entry.owner
        return recorded if recorded and not sight.is_of(recorded) and not self._is_gone(recorded) else None

    def _is_gone(self, owner: Owner) -> bool:
        return self.synchronized and owner.pod_uid not in self._pods

    def _remember_owner(self, container: Container, plan: Plan) -> None:
        for held in pins.held_by(container, plan):
            if held.entry.owner is None or not container.sight.is_of(held.entry.owner):
                self.later.put(partial(self._own, held.entry.uid, container.sight.owner))

    def _answer(self, container: Container, plan: Plan) -> Pin:
        """What it gets when somebody updates it. Where no CPU is left to give, it keeps what it has."""
        pin = desired(container, plan)
        if pin.cpus or pins.is_left_alone(container, plan):
            return pin
        return Pin(container.seen or container.may)

    def _known(self, sight: Sight, stage: Stage) -> Container:
        """The container; one that was made while nobody told us is found as it is."""
        return self._containers.get(sight.id) or self._found(sight, stage, None)

    def _found(self, sight: Sight, stage: Stage, mask: int | None) -> Container:
        plan = self._plan()
        note = plan.online if sight.cpus is None else sight.cpus
        may = note if stage < Stage.RUNNING else plan.online
        if mask is not None:
            note = may = mask
        legible = mask is not None
        container = Container(sight, stage, may, seen=mask, legible=legible, told_at=self._clock())
        running = stage is Stage.RUNNING
        try:
            container = replace(container, claims=self._claims_of(sight, plan, found=running))
            self._remember_owner(container, plan)
        except RefusedContainerError as error:
            container = replace(container, refusal=str(error))
            self.later.put(partial(log.warning, "runs as without a claim: %s", error))
        cpus = desired(container, plan).cpus
        return replace(container, astray=running and bool(cpus) and note != cpus)

    def _reconsidered(self, container: Container, plan: Plan) -> Container:
        """With its claims, if it was found without them and may have them by now."""
        if not container.refusal:
            return container
        with suppress(RefusedContainerError):
            found = container.stage is Stage.RUNNING
            claims = pins.claims_of(container.sight, plan, self._rival, found=found)
            container = replace(container, claims=claims, refusal="")
            self._remember_owner(container, plan)
        return container

    def _listed(self, sight: Sight, masks: Masks) -> Container:
        stage = STAGES[sight.state]
        if sight.id not in self._containers:
            return self._found(sight, stage, masks.get(sight.id))
        return self._noted(sight, masks).reach_stage(stage)

    def _noted(self, sight: Sight, masks: Masks) -> Container:
        """It has what the runtime has noted, where the kernel does not say."""
        container = self._known(sight, Stage.CREATED)
        hidden = sight.id in masks and masks[sight.id] is None
        return container.listed(sight.cpus) if hidden and sight.cpus is not None else container

    def _drop_unlisted(self, listed: set[str], masks: Masks, *, afresh: bool) -> None:
        for container in [each for each in self._containers if each.id not in listed]:
            young = self._clock() - container.told_at < CREATION
            coming = container.stage is Stage.CREATING and young and not afresh
            gone = container.id in masks and masks[container.id] is None
            if gone and not coming:
                self._containers.drop(container.id)

    def _changed(self, plan: Plan) -> list[Container]:
        return dues.changed(self._containers.loose(plan), plan)

    def _lost(self, plan: Plan, before: float) -> list[Container]:
        return dues.lost(self._containers.loose(plan), plan, before)

    def _tell(
        self, containers: Iterable[Container], plan: Plan, how: Callable[..., Container] = Container.tell
    ) -> list[Update]:
        now = self._clock()
        due = {each.id: each for each in containers}
        told = list(fitting(Update(each.id, desired(each, plan)) for each in due.values()))
        for number, update in enumerate(told):
            self._keep(how(due[update.container], pin=update.pin, now=now + number * PACE))
        return [each for each in told if each.pin.cpus]


def _by_seniority(sights: Iterable[Sight], plan: Plan) -> list[Sight]:
    """Owners of claims first, then the oldest: if two name a claim, the first is let have it."""
    owned = (held.entry.owner for held in plan.claims.values())
    owners = {(each.pod_uid, each.container) for each in owned if each}
    return sorted(sights, key=lambda each: ((each.pod_uid, each.name) not in owners, each.created_at, each.id))
