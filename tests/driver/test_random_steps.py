"""Thousands of random steps of kubelet, runtime, API server and fate; what must hold is looked at after each."""

import json
import os
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from driver.ledger.entry import Entry, Snapshot
from driver.ledger.files import read_entry
from driver.metadata import cdi_ids
from driver.ports import ClaimRef
from driver.serve import Driver
from models import Topology, format_cpuset, parse_cpuset
from tests.driver.nri.fake_runtime import NotCreated
from tests.driver.world import World
from topologies import catalog, synthetic

STEPS = int(os.environ.get("CPUSAT_RANDOM_STEPS", "500"))
"""For each of the four seeds; set the variable for more of them."""

PATIENCE = 30.0
"""Seconds in which what need not be so at once must be so."""

T = TypeVar("T")

OPTIONS: tuple[dict[str, Any], ...] = (
    {"allocationPolicy": "packed"},
    {"allocationPolicy": "distributed"},
    {"allocationPolicy": "distributed", "numaMin": 2},
    {"allocationPolicy": "distributed", "numaMin": "all"},
    {"fullCores": True},
    {"numaMax": 1},
    {"numaMin": 2},
    {"threads": "spread"},
)

RESTARTS = {"restart_driver", "kill_driver", "kill_runtime_process", "restart_runtime", "reboot"}

FLUSHES = {"prepared": 3, "unprepared": 3, "prepared again": 1}
"""One more than the driver needs, so that it sometimes comes to its answer before it is killed."""

REASONS = {"NotPlaceable", "NoSharedCPU", "Held", "BadConfig"}
"""For which a claim may be refused while the API server is there."""


class Steps:
    """What a kubelet, a runtime and a cluster do to one driver, and what they have been told by it.

    ``answered``: CPUs by the uid of each claim that was prepared. ``pending``: claims of which the kubelet does
    not know what has become, since the driver died while it was asked; ``carriers``: containers by claim.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.refs: dict[str, ClaimRef] = {}
        self.answered: dict[str, frozenset[int]] = {}
        self.pending: dict[str, Callable[[], None]] = {}
        self.carriers: dict[str, str] = {}
        self.shared: list[str] = []
        self.away = False
        self.count: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=20)

    def take(self, number: int) -> None:
        """One step, and a look at everything."""
        weights = list(WEIGHTS.values())
        while True:
            (name,) = self.random.choices(list(WEIGHTS), weights)
            if (told := getattr(self, name)()) is not None:
                break
        self.count[name] += 1
        self.last.append(f"{number}: {name} {told}")
        self.check(patient=name in RESTARTS or self.random.random() < 0.25)

    # The kubelet

    def prepare(self) -> str | None:
        if len(self.answered) > 14:
            return None
        ref, said, certain = self._new_claim()
        return f"{said}: {self._prepare(ref, certain)}"

    def prepare_again(self) -> str | None:
        if (uid := self._any(self.answered)) is None:
            return None
        assert self.world.prepare(self.refs[uid]) == self.answered[uid]
        return uid

    def unprepare(self) -> str | None:
        if (uid := self._any(self.answered)) is None:
            return None
        self._end_carrier(uid)
        del self.answered[uid]
        self._unprepare(uid)
        return uid

    def unprepare_unknown(self) -> str:
        ref = self.world.claim(1)
        assert self.world.kubelet.unprepare(ref) == {ref.uid: ""}
        return ref.uid

    # Containers

    def run_claim(self) -> str | None:
        if (uid := self._any(self.answered.keys() - self.carriers.keys())) is None:
            return None
        self.carriers[uid] = self._create(f"pod-{uid}", self.world.env(self.refs[uid]))
        return f"{uid} as {self.carriers[uid]}"

    def run_second(self) -> str | None:
        if (uid := self._any(self.carriers)) is None:
            return None
        with pytest.raises(NotCreated, match="one container"):
            self.world.runtime.create(f"pod-{uid}", "second", self.world.env(self.refs[uid]))
        return uid

    def run_shared(self) -> str | None:
        if len(self.shared) > 8:
            return None
        self.shared.append(self._create(f"shared-{self.random.randrange(5)}", ()))
        return self.shared[-1]

    def end_container(self) -> str | None:
        if (container := self._any([*self.shared, *self.carriers.values()])) is None:
            return None
        self._end(container)
        return container

    def foreign_cpuset(self) -> str | None:
        if (container := self._any([*self.shared, *self.carriers.values()])) is None:
            return None
        cpus = format_cpuset(self._some(self.world.topology.online)) if self.random.random() < 0.8 else ""
        self.world.runtime.update_resources(container, cpus)
        return f"{container}: {cpus}"

    # Fate

    def restart_driver(self) -> str:
        self.world.go_down()
        told = self._meanwhile()
        self.world.come_up()
        return told

    def kill_driver(self) -> str:
        uid, asked, answer = self._question()
        flushes = self.random.randint(1, FLUSHES[asked])
        assert self.world.death is not None
        death = self.world.death
        death.arm(flushes)
        with ThreadPoolExecutor(1) as kubelet:
            call = kubelet.submit(answer)
            while not (call.done() or death.came.wait(0.01)):
                pass
            self.world.die()
            error = call.exception()
        assert error is None or isinstance(error, grpc.RpcError), error
        told = f"while it {asked} {uid}, flush {flushes}, {'in time' if error else 'after its answer'}"
        self.count[f"killed as it {asked}" if error else "killed after an answer"] += 1
        told += self._meanwhile()
        self.world.come_up()
        self.check(patient=True)
        if error and uid in self.pending:
            self.pending.pop(uid)()
        return told

    def kill_runtime_process(self) -> str | None:
        """Containers start as they are while nobody answers; a claim waits, or is refused and keeps its CPUs."""
        if self.driver._remote is None:
            return None
        remote, pid = self.driver._remote, self.driver._remote.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        told = self._amid()
        self._until(lambda: remote.pid not in (None, pid) and remote.wait(0), "no other process has come")
        self._until(lambda: "NRIAway" not in self.driver.conditions.current(), "the condition stays")
        snapshot = self.driver.ledger.snapshot
        self._until(lambda: remote.settle(1) and self._in_line(snapshot), "masks are not brought in line")
        return f"{pid}{told}"

    def restart_runtime(self) -> str:
        self.world.runtime.restart()
        self.world.wait_for_plugin()
        return ""

    def api_server(self) -> str | None:
        if not self.away and self.random.random() < 0.75:
            return None
        self.away = not self.away
        (self.world.api.away if self.away else self.world.api.back)()
        return "goes away" if self.away else "is back"

    def reboot(self) -> str:
        """Processes and what is in ``/run`` are gone."""
        self.world.go_down()
        for container in [*self.shared, *self.carriers.values()]:
            self._end(container)
        for path in (self.world.folder / "cdi").iterdir():
            path.unlink()
        self.world.come_up()
        return ""

    # What must hold

    def check(self, *, patient: bool) -> None:
        """What holds at any time and, if ``patient``, what need only be so soon."""
        snapshot = self.driver.ledger.snapshot
        self._check_ledger(snapshot)
        self._check_files(snapshot)
        self._check_masks()
        if patient:
            self._until(lambda: self._in_line(snapshot), "masks are not brought in line")
            self._check_masks()
        assert self.world.runtime.faults == []

    def _check_ledger(self, snapshot: Snapshot) -> None:
        entries = snapshot.entries
        for one, other in combinations(entries.values(), 2):
            assert not one.cpuset & other.cpuset, f"{one.uid} and {other.uid} share CPUs"
        assert not snapshot.held & snapshot.node.reserved
        assert self.answered.keys() <= entries.keys() <= self.answered.keys() | self.pending.keys()
        for uid, cpus in self.answered.items():
            assert entries[uid].cpuset == cpus, f"{uid} had other CPUs before"
            assert not entries[uid].adopted
        assert snapshot.quarantined == frozenset()

    def _check_files(self, snapshot: Snapshot) -> None:
        ledger = [path for path in self.driver.folders.ledger.iterdir() if path.suffix == ".json"]
        entries = {entry.uid: _lasting(entry) for entry in map(read_entry, ledger)}
        assert entries == {uid: _lasting(entry) for uid, entry in snapshot.entries.items()}
        files = sorted((self.world.folder / "cdi").glob("dra.k8s.io-cpu_claim-*"))
        variables = [_variable(path) for path in files]
        wanted = {f"DRA_CPUSET_{uid}={format_cpuset(each.cpuset)}" for uid, each in snapshot.entries.items()}
        assert len(variables) == len(wanted)
        assert set(variables) == wanted
        self._check_metadata(snapshot)

    def _check_metadata(self, snapshot: Snapshot) -> None:
        entries, specs = snapshot.entries, (self.world.folder / "cdi").glob("dra.cpu_metadata_*")
        mounted = {
            f"{uid}_{grant.request}.json"
            for uid, entry in entries.items()
            for grant in entry.grants
            if cdi_ids(entry, grant)
        }
        folder = self.driver.folders.metadata
        assert {path.name for path in folder.iterdir()} == mounted if folder.exists() else not mounted
        assert {path.name.removeprefix("dra.cpu_metadata_") for path in specs} == mounted
        assert all(self.driver.cdi.stands(entry) for entry in entries.values())

    def _check_masks(self) -> None:
        masks = self.world.runtime.masks()
        assert masks.keys() == {*self.shared, *self.carriers.values()}
        for uid, container in self.carriers.items():
            assert masks[container] == self.answered[uid], f"{container} of {uid}"
        for shared in self.shared:
            for uid in self.carriers:
                assert not masks[shared] & self.answered[uid], f"{shared} may run on CPUs of {uid}"

    def _in_line(self, snapshot: Snapshot) -> bool:
        masks = self.world.runtime.masks()
        return all(masks[container] == snapshot.pool for container in self.shared)

    # How it is done

    @property
    def driver(self) -> Driver:
        assert self.world.driver is not None
        return self.world.driver

    def _new_claim(self) -> tuple[ClaimRef, str, bool]:
        """A claim, what it says, and whether it must be placed."""
        snapshot = self.driver.ledger.snapshot
        least = snapshot.node.min_shared
        if self.random.random() < 0.2:
            free = snapshot.free if self.random.random() < 0.7 else frozenset()
            cpus = self._some(free or snapshot.node.online)
            fits = cpus <= snapshot.free and len(snapshot.free - cpus) >= least
            given = format_cpuset(cpus)
            return self.world.claim(len(cpus), given=given), f"given {given}", fits
        count, said = self._size(), self.random.choice(({}, {}, *OPTIONS))
        ref = self.world.claim(count, **said)
        return ref, f"{ref.uid}: {count} {said}", not said and count <= len(snapshot.free) - least

    def _size(self) -> int:
        online = len(self.world.topology.online)
        return self.random.randint(1, max(2, online // self.random.choice((2, 6, 6, 12))))

    def _prepare(self, ref: ClaimRef, certain: bool, more: Set[str] = frozenset()) -> str:
        """``more``: reasons for which it may be refused besides."""
        self.refs[ref.uid] = ref
        known = ref.uid in self.driver.ledger.snapshot.entries
        (reply,) = self.world.kubelet.prepare(ref).values()
        if not reply.error:
            self.answered[ref.uid] = self.world.held(ref)
            return format_cpuset(self.answered[ref.uid])
        reason = reply.error.partition(":")[0]
        assert not known, "a claim that the ledger has is refused"
        assert reason in self._reasons(certain) | more, reply.error
        if reason == "RuntimeAway":
            self.pending[ref.uid] = lambda: None
            self._unprepare(ref.uid)
            del self.pending[ref.uid]
        self.count[f"refused: {reason}"] += 1
        return reply.error

    def _reasons(self, certain: bool) -> set[str]:
        """For which a new claim may be refused now."""
        if self.away:
            return {"ApiAway"}
        possible = set() if certain else REASONS
        if "StaticCPUManager" in self.driver.conditions.current():
            return {"Degraded"} | possible  # It may have been set after the claim was looked at.
        return possible

    def _unprepare(self, uid: str) -> None:
        assert self.world.kubelet.unprepare(self.refs[uid]) == {uid: ""}

    def _question(self) -> tuple[str, str, Callable[[], object]]:
        """A claim, what the kubelet asks for it, and how; ``pending`` says what it does if it gets no answer."""
        uid = self._any(self.answered)
        asks = self.random.choices(("prepared", "unprepared", "prepared again"), (5, 4, 1))[0]
        if uid is None or asks == "prepared":
            ref, _, _ = self._new_claim()
            self.refs[ref.uid] = ref
            self.pending[ref.uid] = self.random.choice(
                (lambda: self._prepare(ref, False) and None, lambda: self._unprepare(ref.uid))
            )
            return ref.uid, "prepared", lambda: self._first_answer(ref)
        if asks == "prepared again":
            return uid, asks, lambda: self.world.kubelet.prepare(self.refs[uid])[uid].require()
        self._end_carrier(uid)
        del self.answered[uid]
        self.pending[uid] = lambda: self._unprepare(uid)
        return uid, asks, lambda: self._last_answer(uid)

    def _first_answer(self, ref: ClaimRef) -> None:
        driver, reply = self.driver, self.world.kubelet.prepare(ref)[ref.uid]
        del self.pending[ref.uid]
        if not reply.error:
            self.answered[ref.uid] = driver.ledger.snapshot.entries[ref.uid].cpuset

    def _last_answer(self, uid: str) -> None:
        self._unprepare(uid)
        del self.pending[uid]

    def _create(self, pod: str, env: tuple[str, ...]) -> str:
        """As a kubelet does it: again and again while it is refused."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.world.runtime.create(pod, "main", env).id
            except NotCreated:
                self.count["creations tried again"] += 1
                if time.monotonic() > end:
                    raise
                self._remove_stopped()
                time.sleep(0.05)

    def _remove_stopped(self) -> None:
        alive = self.world.runtime.masks()
        for container in [each for each in self.world.runtime.containers if each not in alive]:
            self.world.runtime.remove(container)

    def _meanwhile(self) -> str:
        """What others may do while the driver is away."""
        if self.shared and self.random.random() < 0.4:
            container = self.random.choice(self.shared)
            self.world.runtime.update_resources(container, format_cpuset(self.world.topology.online))
            return f", {container} was given all CPUs meanwhile"
        if self.shared and self.random.random() < 0.4:
            self._end(container := self.random.choice(self.shared))
            return f", {container} ended meanwhile"
        return ""

    def _amid(self) -> str:
        """What others may do just when nobody answers the runtime."""
        if self.random.random() < 0.3:
            self.shared.append(self._create(f"shared-{self.random.randrange(5)}", ()))
            return f", {self.shared[-1]} was made meanwhile"
        if self.random.random() < 0.5:
            ref, said, _ = self._new_claim()
            return f", meanwhile {said}: {self._prepare(ref, False, {'Degraded', 'RuntimeAway'})}"
        return ""

    def _end_carrier(self, uid: str) -> None:
        if uid in self.carriers:
            self._end(self.carriers[uid])

    def _end(self, container: str) -> None:
        if self.random.random() < 0.5:
            self.world.runtime.stop(container)
        self.world.runtime.remove(container)
        self.shared = [each for each in self.shared if each != container]
        self.carriers = {uid: each for uid, each in self.carriers.items() if each != container}

    def _any(self, among: Any) -> Any:
        """One of them, if there are any; the same for the same seed."""
        found = list(among) if isinstance(among, list) else [uid for uid in self.refs if uid in among]
        return self.random.choice(found) if found else None

    def _some(self, cpus: frozenset[int]) -> frozenset[int]:
        return frozenset(self.random.sample(sorted(cpus), min(len(cpus), self.random.randint(1, 6))))

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, otherwise
            time.sleep(0.005)


WEIGHTS = {
    "prepare": 22,
    "prepare_again": 8,
    "unprepare": 13,
    "unprepare_unknown": 1,
    "run_claim": 14,
    "run_second": 3,
    "run_shared": 9,
    "end_container": 10,
    "foreign_cpuset": 6,
    "restart_driver": 1.5,
    "kill_driver": 5,
    "kill_runtime_process": 2,
    "restart_runtime": 1.5,
    "api_server": 8,
    "reboot": 1,
}


def _lasting(entry: Entry) -> Entry:
    """What is on disk before the claim is answered: all but the container that carries it."""
    return entry.model_copy(update={"owner": None})


def _variable(path: Path) -> str:
    (device,) = json.loads(path.read_text())["devices"]
    (variable,) = device["containerEdits"]["env"]
    return str(variable)


@contextmanager
def told_on_failure(steps: Steps, seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"seed {seed}, {steps.count.total()} counted; the last steps before the one that failed:")
        print(*steps.last, sep="\n")
        raise
    finally:
        print(dict(sorted(steps.count.items())))


SMALL = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
WITHOUT_SMT = synthetic.build("socket:2 numa:1 core:8 cpu:1")
LARGE = catalog.read("2s8n-128c256t-epyc-7763-nps4")


@pytest.mark.parametrize(
    ("seed", "machine", "settings"),
    [
        (1, SMALL, {"solverTimeLimit": 0, "reservedCPUs": "0-1"}),
        (2, WITHOUT_SMT, {"solverTimeLimit": 0, "apart": False}),
        (3, LARGE, {"solverTimeLimit": 0, "reservedCPUs": "0,128", "minSharedCPUs": 4}),
        (4, SMALL, {"solverTimeLimit": 1.0, "reservedCPUs": "0,8"}),
    ],
    ids=["greedy", "without SMT or reserved CPUs", "256 CPUs", "CP-SAT"],
)
def test_whatever_happens_claims_keep_their_cpus_and_nobody_else_runs_on_them(
    short_path: Path, seed: int, machine: Topology, settings: dict[str, Any]
) -> None:
    with World(short_path, machine, **settings).running() as world:
        steps = Steps(world, seed)
        with told_on_failure(steps, seed):
            for number in range(STEPS):
                steps.take(number)
        assert {"prepare", "unprepare", "run_claim", "run_shared", "kill_driver"} <= steps.count.keys()


def test_64_claims_prepared_at_once_get_disjoint_cpus(short_path: Path) -> None:
    with World(short_path, LARGE, solverTimeLimit=0, reservedCPUs="0,128").running() as world:
        claims = [world.claim(3) for _ in range(64)]
        with ThreadPoolExecutor(64) as pool:
            for replies in pool.map(world.kubelet.prepare, claims):
                for each in replies.values():
                    each.require()
        held = [world.held(ref) for ref in claims]
        assert [len(cpus) for cpus in held] == [3] * 64
        assert len(frozenset().union(*held)) == 3 * 64
        for ref, cpus in zip(claims, held, strict=True):
            (variable,) = world.env(ref)
            assert parse_cpuset(variable.partition("=")[2]) == cpus
