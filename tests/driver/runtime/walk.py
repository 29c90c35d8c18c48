"""What can befall a node, step by step, at random: pods come and go, parts of it stop, die, hang and lie."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from driver.names import CDI_KIND, cdi_file, cdi_name, variable
from models import format_cpuset
from tests.driver.runtime.faulty import Faults
from tests.driver.runtime.hand import Hand
from tests.driver.runtime.masks import mask, read_status
from tests.driver.runtime.node import ONLINE, Node, RefusedError, Running, until


class Walk(Hand):
    """Takes steps on a node; what must hold is looked at after each. A step sees to what it needs first."""

    def __init__(self, node: Node, faults: Faults, seed: int) -> None:
        super().__init__(node, random.Random(seed))
        self.faults = faults
        self.taken: Counter[str] = Counter()

    def step(self, number: int) -> None:
        """One step, and what must hold after it."""
        names = list(STEPS)
        (name,) = self.random.choices(names, [STEPS[each][0] for each in names])
        STEPS[name][1](self)
        self.taken[name] += 1
        self.node.check(f"{number}. {name}")
        held = {ref.uid for ref in self.claims}
        assert set(self.node.ledger) == held, name
        files = {file.name for file in self.node.containerd.cdi_dir.iterdir()}
        assert {each for each in files if "metadata" not in each} == set(map(cdi_file, held)), name
        mounted = {each.split("_")[2] for each in files if "metadata" in each}
        assert mounted <= held, name
        assert mounted >= held & self.node.told.keys(), name

    # Claims

    def prepare(self) -> None:
        self.make_room()
        self.prepared(self.new_claim())

    def prepare_again(self) -> None:
        ref = self.some_claim()
        held = self.node.ledger[ref.uid].cpuset
        assert self.node.prepare(ref) == held

    def prepare_without_room(self) -> None:
        while self.is_room():
            self.prepared(self.new_claim())
        assert "shared pool" in self.refusal(self.node.claim())

    def prepare_among_creates(self) -> None:
        self.make_room(containers=3)
        ref = self.new_claim()
        with ThreadPoolExecutor() as several:
            created = [several.submit(self.started, name=self.new_name()) for _ in range(3)]
            prepared = several.submit(self.prepared, ref)
            for each in (*created, prepared):
                each.result()

    def unprepare(self) -> None:
        self.released(self.some_claim())

    def unprepare_twice(self) -> None:
        ref = self.some_claim()
        self.released(ref)
        self.node.unprepare(ref)

    def adopt(self) -> None:
        self.make_room()
        ref, cpu = self.node.claim(), min(self.free())
        device = {"name": cdi_name(ref.uid), "containerEdits": {"env": [f"{variable(ref.uid)}={cpu}"]}}
        with self.without_driver():
            file = self.node.containerd.cdi_dir / cdi_file(ref.uid)
            file.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": [device]}))
        assert self.node.ledger[ref.uid].adopted
        self.claims.append(ref)
        assert self.node.prepare(ref) == {cpu}

    # Containers

    def share(self) -> None:
        self.make_room(containers=1, cpus=0)
        container = self.started(name=self.new_name())
        held = frozenset[int]().union(*(entry.cpuset for entry in self.node.ledger.values()))
        assert self.node.first_mask(container) == ONLINE - held

    def carry(self) -> None:
        self.carrier(self.some_claim())

    def restart_carrier(self) -> None:
        container = self.carrier(self.some_claim())
        self.node.remove(container, pod=False)
        self.again(container)

    def end_shared(self) -> None:
        if shared := self.shared():
            self.node.remove(self.random.choice(shared))

    def update(self) -> None:
        container = self.some_container()
        self.node.cri.update(container.id, cpu_shares=self.random.choice([2, 512, 2048]))

    def static_manager(self) -> None:
        container = self.some_container()
        before = mask(container.cgroup)
        other = next(cpu for cpu in sorted(ONLINE) if {cpu} != before)
        for _ in range(2):
            self.node.cri.update(container.id, cpuset_cpus=str(other))
            assert mask(container.cgroup) == before
        ref = self.node.claim()
        until("nothing is prepared", lambda: "StaticCPUManager" in self.refusal(ref))
        self.restart_driver()

    def probe(self) -> None:
        container = self.some_container()
        said = self.node.cri.execute(container.id, "cat", "/proc/self/status")
        assert read_status(said) == mask(container.cgroup)

    def lie(self) -> None:
        ref = self.some_claim()
        cpus = self.node.ledger[ref.uid].cpuset
        right, wrong = format_cpuset(cpus), format_cpuset(ONLINE - cpus)
        stranger = self.node.cri.run_pod(str(uuid4()))
        own = self.pod_of(ref)
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
        container = self.carrier(self.some_claim())
        assert_refused(lambda: self.node.run(container.ref, pod=container.pod, name="second"))

    # Parts of the node

    def restart_driver(self) -> None:
        with self.without_driver(signal.SIGTERM):
            pass

    def kill_driver(self) -> None:
        with self.without_driver():
            pass

    def driver_away(self) -> None:
        self.make_room(containers=1)
        container = self.carrier(self.some_claim())
        with self.without_driver():
            self.started(name=self.new_name())
            self.node.remove(container, pod=False)
            self.again(container)

    def reboot(self) -> None:
        """The folder of CDI files does not outlive it, nor does any process."""
        with self.without_driver():
            for each in list(self.node.containers.values()):
                self.node.remove(each)
            for file in self.node.containerd.cdi_dir.iterdir():
                file.unlink()

    def kill_in_prepare(self) -> None:
        self.make_room()
        ref = self.new_claim()
        if self.faults.kills("prepare", ref, self.random.randint(1, 10)):
            self.node.start_driver()
        self.prepared(ref)

    def kill_in_unprepare(self) -> None:
        ref = self.some_claim()
        self.end_carriers(ref)
        if self.faults.kills("unprepare", ref, self.random.randint(1, 6)):
            self.node.start_driver()
        self.released(ref)

    def stall(self) -> None:
        self.make_room(containers=1)
        ref, at = self.new_claim(), self.random.choice((2, 4))
        self.faults.order(stall_at=at, stall=2)
        with ThreadPoolExecutor() as several:
            prepared = several.submit(self.prepared, ref)
            until("an fsync stalls", lambda: len(self.faults.steps) == at)
            self.started(name=self.new_name())
            prepared.result()
        self.faults.none()

    def stop_worker(self) -> None:
        self._signal_worker(signal.SIGSTOP)

    def kill_worker(self) -> None:
        self._signal_worker(signal.SIGKILL)

    def api_away(self) -> None:
        known, new = self.some_claim(), self.node.claim()
        held = self.node.ledger[known.uid].cpuset
        self.node.api.away()
        assert self.node.prepare(known) == held
        assert "API server" in self.refusal(new)
        self.released(known)
        self.node.api.back()

    def restart_containerd(self) -> None:
        self.random.choice([self.node.containerd.stop, self.node.containerd.kill])()
        self.node.containerd.start()
        container = until("the driver has found containerd again", self._pinned)
        self.node.remove(container)

    def _signal_worker(self, number: signal.Signals) -> None:
        self.make_room()
        os.kill(until("the solver's process", self.node.worker), number)
        self.prepared(self.new_claim())

    def _pinned(self) -> Running | None:
        """A new container that was given the shared pool from the beginning."""
        container = self.started(name="found")
        if self.node.first_mask(container) == mask(container.cgroup) and not self.node.wrong():
            return container
        self.node.remove(container)
        return None


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
