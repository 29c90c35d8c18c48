"""What can befall a node, step by step, at random: pods come and go, parts of it stop, die, hang and lie."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from driver.names import CDI_KIND, cdi_file, cdi_name, variable
from driver.ports import ClaimRef
from models import format_cpuset
from tests.driver.claims.documents import cpuset
from tests.driver.kubelet.kubelet import Refused
from tests.driver.runtime.cri import Pod
from tests.driver.runtime.faulty import Faults
from tests.driver.runtime.masks import mask, read_status
from tests.driver.runtime.node import ONLINE, Node, RefusedError, Running, until

MOST = 5
"""Containers without a claim."""


class Walk:
    """Takes steps on a node, and knows which claims are prepared after each.

    A step that needs a claim, a container or a free CPU sees to it first. What the kubelet would try again and
    again is tried so.
    """

    def __init__(self, node: Node, faults: Faults, seed: int) -> None:
        self.node, self.faults, self.random = node, faults, random.Random(seed)
        self.claims: list[ClaimRef] = []
        self.taken: Counter[str] = Counter()
        self.made = 0

    def step(self, number: int) -> None:
        """One step, and what must hold after it."""
        names = list(STEPS)
        (name,) = self.random.choices(names, [STEPS[each][0] for each in names])
        STEPS[name][1](self)
        self.taken[name] += 1
        self.node.check(f"{number}. {name}")
        held = {ref.uid for ref in self.claims}
        assert set(self.node.ledger) == held, name
        assert {file.name for file in self.node.containerd.cdi_dir.iterdir()} == set(map(cdi_file, held)), name

    # Claims

    def prepare(self) -> None:
        self._room()
        self._prepared(self._new_claim())

    def prepare_again(self) -> None:
        ref = self._some_claim()
        held = self.node.ledger[ref.uid].cpuset
        assert self.node.prepare(ref) == held

    def prepare_without_room(self) -> None:
        while self._is_room():
            self._prepared(self._new_claim())
        assert "shared pool" in self._refusal(self.node.claim())

    def prepare_among_creates(self) -> None:
        self._room(containers=3)
        ref = self._new_claim()
        with ThreadPoolExecutor() as several:
            created = [several.submit(self._started, name=self._name()) for _ in range(3)]
            prepared = several.submit(self._prepared, ref)
            for each in (*created, prepared):
                each.result()

    def unprepare(self) -> None:
        self._released(self._some_claim())

    def unprepare_twice(self) -> None:
        ref = self._some_claim()
        self._released(ref)
        self.node.unprepare(ref)

    def adopt(self) -> None:
        self._room()
        ref, cpu = self.node.claim(), min(self._free())
        device = {"name": cdi_name(ref.uid), "containerEdits": {"env": [f"{variable(ref.uid)}={cpu}"]}}
        with self._driver_away():
            file = self.node.containerd.cdi_dir / cdi_file(ref.uid)
            file.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": [device]}))
        assert self.node.ledger[ref.uid].adopted
        self.claims.append(ref)
        assert self.node.prepare(ref) == {cpu}

    # Containers

    def share(self) -> None:
        self._room(containers=1, cpus=0)
        container = self._started(name=self._name())
        held = frozenset[int]().union(*(entry.cpuset for entry in self.node.ledger.values()))
        assert self.node.first_mask(container) == ONLINE - held

    def carry(self) -> None:
        self._carrier(self._some_claim())

    def restart_carrier(self) -> None:
        container = self._carrier(self._some_claim())
        self.node.remove(container, pod=False)
        self._again(container)

    def end_shared(self) -> None:
        if shared := self._shared():
            self.node.remove(self.random.choice(shared))

    def update(self) -> None:
        container = self._some_container()
        self.node.cri.update(container.id, cpu_shares=self.random.choice([2, 512, 2048]))

    def static_manager(self) -> None:
        container = self._some_container()
        before = mask(container.cgroup)
        other = next(cpu for cpu in sorted(ONLINE) if {cpu} != before)
        for _ in range(2):
            self.node.cri.update(container.id, cpuset_cpus=str(other))
            assert mask(container.cgroup) == before
        ref = self.node.claim()
        until("nothing is prepared", lambda: "StaticCPUManager" in self._refusal(ref))
        self.restart_driver()

    def probe(self) -> None:
        container = self._some_container()
        said = self.node.cri.execute(container.id, "cat", "/proc/self/status")
        assert read_status(said) == mask(container.cgroup)

    def lie(self) -> None:
        ref = self._some_claim()
        cpus = self.node.ledger[ref.uid].cpuset
        right, wrong = format_cpuset(cpus), format_cpuset(ONLINE - cpus)
        stranger = self.node.cri.run_pod(str(uuid4()))
        own = self._pod(ref)
        lies = [
            (stranger, None, {variable(ref.uid): right}),
            (stranger, None, {variable(str(uuid4())): right}),
            (own, None, {variable(ref.uid): "0-1-2"}),
            (own, ref, {variable(ref.uid): wrong}),
        ]
        pod, carried, environment = self.random.choice(lies)
        assert_refused(lambda: self.node.run(carried, pod=pod, name="liar", env=environment))
        self.node.cri.remove_pod(stranger.sandbox)

    def second_carrier(self) -> None:
        container = self._carrier(self._some_claim())
        assert_refused(lambda: self.node.run(container.ref, pod=container.pod, name="second"))

    # Parts of the node

    def restart_driver(self) -> None:
        with self._driver_away(signal.SIGTERM):
            pass

    def kill_driver(self) -> None:
        with self._driver_away():
            pass

    def driver_away(self) -> None:
        self._room(containers=1)
        container = self._carrier(self._some_claim())
        with self._driver_away():
            self._started(name=self._name())
            self.node.remove(container, pod=False)
            self._again(container)

    def reboot(self) -> None:
        """The folder of CDI files does not outlive it, nor does any process."""
        with self._driver_away():
            for each in list(self.node.containers.values()):
                self.node.remove(each)
            for file in self.node.containerd.cdi_dir.iterdir():
                file.unlink()

    def kill_in_prepare(self) -> None:
        self._room()
        ref = self._new_claim()
        if self.faults.kills("prepare", ref, self.random.randint(1, 8)):
            self.node.start_driver()
        self._prepared(ref)

    def kill_in_unprepare(self) -> None:
        ref = self._some_claim()
        self._end_carriers(ref)
        if self.faults.kills("unprepare", ref, self.random.randint(1, 4)):
            self.node.start_driver()
        self._released(ref)

    def stall(self) -> None:
        self._room(containers=1)
        ref, at = self._new_claim(), self.random.choice([2, 4, 6, 8])
        self.faults.order(stall_at=at, stall=2)
        with ThreadPoolExecutor() as several:
            prepared = several.submit(self._prepared, ref)
            until("an fsync stalls", lambda: len(self.faults.steps) == at)
            self._started(name=self._name())
            prepared.result()
        self.faults.none()

    def stop_worker(self) -> None:
        self._signal_worker(signal.SIGSTOP)

    def kill_worker(self) -> None:
        self._signal_worker(signal.SIGKILL)

    def api_away(self) -> None:
        known, new = self._some_claim(), self.node.claim()
        held = self.node.ledger[known.uid].cpuset
        self.node.api.away()
        assert self.node.prepare(known) == held
        assert "API server" in self._refusal(new)
        self._released(known)
        self.node.api.back()

    def restart_containerd(self) -> None:
        self.random.choice([self.node.containerd.stop, self.node.containerd.kill])()
        self.node.containerd.start()
        container = until("the driver has found containerd again", self._pinned)
        self.node.remove(container)

    # What steps need

    def _signal_worker(self, number: signal.Signals) -> None:
        self._room()
        os.kill(until("the solver's process", self.node.worker), number)
        self._prepared(self._new_claim())

    def _pinned(self) -> Running | None:
        """A new container that was given the shared pool from the beginning."""
        container = self._started(name="found")
        if self.node.first_mask(container) == mask(container.cgroup) and not self.node.wrong():
            return container
        self.node.remove(container)
        return None

    def _name(self) -> str:
        self.made += 1
        return f"s{self.made}"

    def _free(self) -> frozenset[int]:
        return ONLINE.difference(*(entry.cpuset for entry in self.node.ledger.values()))

    def _is_room(self) -> bool:
        """One CPU always stays shared."""
        return len(self._free()) > 1

    def _room(self, containers: int = 0, cpus: int = 1) -> None:
        """End what must end so that there can be more."""
        while cpus and not self._is_room():
            self._released(self.random.choice(self.claims))
        while len(self._shared()) + containers > MOST:
            self.end_shared()

    def _new_claim(self) -> ClaimRef:
        """Of a CPU that the solver chooses, or that the claim names."""
        if self.random.random() < 0.5:
            return self.node.claim()
        return self.node.claim(1, cpuset(str(self.random.choice(sorted(self._free())))))

    def _some_claim(self) -> ClaimRef:
        if not self.claims:
            self.prepare()
        return self.random.choice(self.claims)

    def _prepared(self, ref: ClaimRef) -> None:
        until(f"prepared: {ref}", lambda: not self._try_to_prepare(ref), 60)
        self.claims.append(ref)

    def _try_to_prepare(self, ref: ClaimRef) -> str:
        try:
            self.node.prepare(ref)
        except Refused as error:
            return str(error)
        return ""

    def _refusal(self, ref: ClaimRef) -> str:
        """Why the claim is not prepared. Where it is, it does not stay so."""
        if not (why := self._try_to_prepare(ref)):
            self.node.unprepare(ref)
        return why

    def _released(self, ref: ClaimRef) -> None:
        self._end_carriers(ref)
        self.node.unprepare(ref)
        self.claims.remove(ref)

    def _shared(self) -> list[Running]:
        return [each for each in self.node.containers.values() if each.ref is None]

    def _carriers(self, ref: ClaimRef) -> list[Running]:
        return [each for each in self.node.containers.values() if each.ref == ref]

    def _end_carriers(self, ref: ClaimRef) -> None:
        for container in self._carriers(ref):
            self.node.remove(container)

    def _some_container(self) -> Running:
        if not self.node.containers:
            self._started(name=self._name())
        return self.random.choice(list(self.node.containers.values()))

    def _pod(self, ref: ClaimRef) -> Pod:
        """The claim's pod."""
        carriers = self._carriers(ref)
        return carriers[0].pod if carriers else self._carrier(ref).pod

    def _carrier(self, ref: ClaimRef) -> Running:
        """The claim's container; its first process has had the claim's CPUs and no others."""
        for container in self._carriers(ref):
            return container
        container = self._started(ref)
        assert self.node.first_mask(container) == self.node.ledger[ref.uid].cpuset
        return container

    def _again(self, container: Running) -> Running:
        """The kubelet restarts a container in its pod."""
        return self._started(
            container.ref, container.pod, name=container.name, attempt=self.random.randint(1, 1 << 20)
        )

    def _started(self, ref: ClaimRef | None = None, pod: Pod | None = None, **how: object) -> Running:
        """A container, which is tried until the runtime and the driver let it start."""
        pod = pod or self.node.cri.run_pod(ref.uid if ref else str(uuid4()))
        found: Running = until("a container may start", partial(self._try_to_start, ref, pod, how), 60)
        return found

    def _try_to_start(self, ref: ClaimRef | None, pod: Pod, how: dict[str, object]) -> Running | None:
        try:
            return self.node.run(ref, pod=pod, **how)  # type: ignore[arg-type]
        except RefusedError:
            return None

    @contextmanager
    def _driver_away(self, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        self.node.end_driver(how)
        yield
        self.node.start_driver()
        until("what was done meanwhile is put right", lambda: not self.node.wrong())


def assert_refused(call: Callable[[], object]) -> None:
    """The runtime must not do it."""
    try:
        call()
    except RefusedError:
        return
    raise AssertionError("a container has started that must not")


STEPS: dict[str, tuple[int, Callable[[Walk], None]]] = {
    "a claim is prepared": (8, Walk.prepare),
    "a claim is prepared again": (3, Walk.prepare_again),
    "a claim that has no room is refused": (3, Walk.prepare_without_room),
    "a claim is prepared while three containers are created": (8, Walk.prepare_among_creates),
    "a claim is unprepared": (5, Walk.unprepare),
    "a claim is unprepared twice": (2, Walk.unprepare_twice),
    "a claim of the Go driver is taken over": (3, Walk.adopt),
    "a container without a claim starts": (8, Walk.share),
    "a claim's container runs": (8, Walk.carry),
    "a claim's container restarts": (6, Walk.restart_carrier),
    "a container without a claim ends": (3, Walk.end_shared),
    "a container is updated without a cpuset": (6, Walk.update),
    "a static CPU manager updates a container": (3, Walk.static_manager),
    "a probe is executed": (4, Walk.probe),
    "a container lies": (6, Walk.lie),
    "a second container wants a claim": (3, Walk.second_carrier),
    "the driver restarts": (3, Walk.restart_driver),
    "the driver is killed": (3, Walk.kill_driver),
    "the driver is away while containers are made": (6, Walk.driver_away),
    "the node reboots": (2, Walk.reboot),
    "the driver is killed in the midst of a prepare": (8, Walk.kill_in_prepare),
    "the driver is killed in the midst of an unprepare": (5, Walk.kill_in_unprepare),
    "an fsync stalls": (3, Walk.stall),
    "the solver's process is stopped": (3, Walk.stop_worker),
    "the solver's process is killed": (3, Walk.kill_worker),
    "the API server is away": (4, Walk.api_away),
    "containerd restarts": (6, Walk.restart_containerd),
}
"""What is said of a step, how often it is taken among the others, and the step."""
