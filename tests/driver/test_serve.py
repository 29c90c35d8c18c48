"""The whole driver on a node with doubles of kubelet, runtime and API server at its real sockets."""

import errno
import json
import shutil
import subprocess
import sys
import threading
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from driver.cdi import CDI
from driver.cli import main
from driver.errors import RefusedError
from driver.kubelet.serve import TRIES
from driver.ledger.entry import Entry
from driver.ledger.files import Files
from driver.names import cdi_file, cdi_id, variable
from driver.ports import ClaimRef
from models import BadInputError, format_cpuset, parse_cpuset
from tests.driver.cluster.waiting import until
from tests.driver.kubelet.kubelet import Refused
from tests.driver.nri.fake_runtime import NotCreated
from tests.driver.world import World
from topologies import synthetic

MACHINE = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""32 CPUs on 4 NUMA nodes."""


@pytest.fixture
def world(short_path: Path) -> Iterator[World]:
    with World(short_path, MACHINE, solverTimeLimit=0, reservedCPUs="0-1").running() as running:
        yield running


def until_published(world: World) -> list[str]:
    import time

    end = time.monotonic() + 20
    while not world.api.slices() and time.monotonic() < end:
        time.sleep(0.02)
    return [device["name"] for each in world.api.slices() for device in each["spec"]["devices"]]


def page(world: World, path: str) -> tuple[int, str]:
    assert world.driver is not None
    endpoints = world.driver._running[0]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoints.port}{path}", timeout=20) as reply:  # type: ignore[attr-defined]
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_pod_gets_its_cpus_and_everyone_else_the_others(world: World) -> None:
    shared = world.runtime.create("other", "web")
    ref = world.claim(8, allocationPolicy="distributed", numaMin="all")
    cpus = world.prepare(ref)
    container = world.run(ref)
    masks = world.runtime.masks()
    assert masks[container.id] == cpus
    assert masks[shared.id] == world.topology.online - cpus - {0, 1}
    numa = {cpu.cpu: cpu.numa for cpu in world.topology.cpus}
    assert sorted(sum(numa[cpu] == node for cpu in cpus) for node in range(4)) == [2, 2, 2, 2]
    world.runtime.remove(container.id)
    assert world.kubelet.unprepare(ref) == {ref.uid: ""}
    assert world.driver is not None
    assert world.driver.ledger.snapshot.held == frozenset()


def test_masks_do_without_cpus_that_are_down_and_have_them_again_when_they_are_up(world: World) -> None:
    shared, ref = world.runtime.create("other", "web"), world.claim(4)
    cpus = world.prepare(ref)
    own = world.run(ref)
    everyone, lost = world.topology.online, {max(cpus), max(world.topology.online - cpus)}
    assert world.driver is not None
    for online in (everyone - lost, everyone):
        (world.root / "sys/devices/system/cpu/online").write_text(format_cpuset(online))
        world.driver.watch.look()
        wanted = {own.id: cpus & online, shared.id: (everyone - cpus - {0, 1}) & online}
        until(partial(lambda masks: world.runtime.masks() == masks, wanted))
        assert ("TopologyChanged" in world.driver.conditions.current()) is (online != everyone)
    assert world.held(ref) == cpus


def test_devices_are_published_and_probes_answer(world: World) -> None:
    assert until_published(world) == ["cpudevmachine"]
    assert page(world, "/healthz") == (200, "ok\n")
    assert page(world, "/readyz") == (200, "ok\n")
    world.prepare(world.claim(4))
    status, metrics = page(world, "/metrics")
    assert status == 200
    assert 'cpusat_driver_prepares_total{engine="greedy"} 1.0' in metrics


def test_whoever_looks_from_elsewhere_sees_the_node_by_its_name_and_pods_by_theirs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = world.claim(4, pod="pod-1")
    cpus = world.prepare(ref)
    world.runtime.create("pod-1", "main", world.env(ref))
    line = ["state", "--ledger", str(world.folder / "k/plugins/dra.cpu/ledger"), "--output", "json"]
    monkeypatch.setenv("NODE_NAME", "elsewhere")

    def told() -> Any:
        return json.loads(CliRunner().invoke(main, line, catch_exceptions=False).output)

    until(lambda: told()["claims"][0]["carried_by"] == "default/name-of-pod-1")  # Written in the background.
    assert told()["node"] == "node-1"
    assert told()["claims"][0]["pod_names"] == {"pod-1": "default/name-of-pod-1"}
    labels = f'claim="{ref.name}",cpuset="{format_cpuset(cpus)}",engine="greedy",namespace="default"'
    assert f"cpusat_driver_claim_info{{{labels}" in page(world, "/metrics")[1]


@pytest.mark.parametrize("shown", [True, False])
def test_the_kubelet_is_told_of_metadata_where_the_configuration_wants_it(short_path: Path, shown: bool) -> None:
    with World(short_path, MACHINE, solverTimeLimit=0, deviceMetadata=shown).running() as world:
        ref = world.claim(4)
        reply = world.kubelet.prepare(ref)[ref.uid]
        assert reply.cdi == (cdi_id(ref.uid), *([f"dra.cpu/metadata={ref.uid}_r"] if shown else []))
        file = world.folder / f"k/plugins/dra.cpu/dra-device-metadata/{ref.uid}_r.json"
        assert file.exists() is shown
        assert not shown or '"dra.cpu/numCPUs": {' in file.read_text()
        world.kubelet.unprepare(ref)
        assert not file.exists()
        assert not list((world.folder / "cdi").iterdir())


def test_a_claim_is_answered_with_the_same_cpus_again_and_after_a_restart(world: World) -> None:
    ref = world.claim(6)
    cpus = world.prepare(ref)
    assert world.prepare(ref) == cpus
    container = world.run(ref)
    world.go_down()
    (world.folder / "cdi").rename(world.folder / "cdi-gone")
    world.come_up()
    assert world.prepare(ref) == cpus
    assert world.runtime.masks()[container.id] == cpus
    names = {path.name for path in (world.folder / "cdi").iterdir()}
    assert names == {cdi_file(ref.uid), f"dra.cpu_metadata_{ref.uid}_r.json"}


def test_a_container_without_a_prepared_claim_cannot_pretend_to_have_one(world: World) -> None:
    ref = world.claim(4)
    cpus = world.prepare(ref)
    for pod, env in [
        ("stranger", world.env(ref)),
        (f"pod-{ref.uid}", (f"DRA_CPUSET_{ref.uid}=4-7,20",)),
        (f"pod-{ref.uid}", (f"DRA_CPUSET_{ref.uid}=2-31", *world.env(ref))),
        ("stranger", ("DRA_CPUSET_00000000-0000-0000-0000-000000000000=2-3",)),
    ]:
        with pytest.raises(NotCreated):
            world.runtime.create(pod, "main", env)
    assert world.runtime.masks() == {}
    assert world.runtime.masks().get(world.run(ref).id, cpus) == cpus


def test_what_cannot_be_placed_is_refused_with_the_nearest_request_as_an_event(world: World) -> None:
    world.prepare(world.claim(20))
    ref = world.claim(12)
    with pytest.raises(Refused, match="12 CPUs requested, 10 CPUs free"):
        world.prepare(ref)
    import time

    end = time.monotonic() + 20
    while not world.api.events() and time.monotonic() < end:
        time.sleep(0.02)
    (event,) = [each for each in world.api.events() if each["reason"] == "NotPlaceable"]
    assert "would be placed with cpus 10" in event["message"]


def test_a_claim_that_no_api_server_vouches_for_is_refused_and_known_ones_are_answered(world: World) -> None:
    known, new = world.claim(4), world.claim(4)
    cpus = world.prepare(known)
    world.api.away()
    assert world.prepare(known) == cpus
    with pytest.raises(Refused, match="ApiAway"):
        world.prepare(new)
    world.api.back()
    assert not world.prepare(new) & cpus


def test_the_last_shared_cpu_is_not_given(short_path: Path) -> None:
    machine = synthetic.build("numa:1 core:24 cpu:1")
    with World(short_path, machine, solverTimeLimit=0, reservedCPUs="0", minSharedCPUs=1).running() as world:
        with pytest.raises(Refused, match="shared"):
            world.prepare(world.claim(23))
        assert len(world.prepare(world.claim(22))) == 22


def test_an_empty_pool_sends_everyone_else_to_the_reserved_cpus(world: World) -> None:
    shared = world.runtime.create("other", "web")
    ref = world.claim(30)
    world.prepare(ref)
    world.run(ref)
    assert world.runtime.masks()[shared.id] == parse_cpuset("0-1")


def test_a_second_pod_of_a_claim_is_let_in_at_the_next_try_without_another_prepare(world: World) -> None:
    """The kubelet does not call Prepare for a claim that it holds prepared for another pod."""
    ref = world.claim(2, pod="pod-1")
    cpus = world.prepare(ref)
    first = world.runtime.create("pod-1", "main", world.env(ref))
    world.reserve(ref, "pod-1", "pod-2")
    with pytest.raises(NotCreated, match="the claim is not reserved for this pod"):
        world.runtime.create("pod-2", "main", world.env(ref))
    until(lambda: world.entry(ref).pods == {"pod-1", "pod-2"})
    with pytest.raises(NotCreated, match="the claim belongs to container 'main' of pod pod-1"):
        world.runtime.create("pod-2", "main", world.env(ref))
    world.runtime.remove(first.id)
    world.runtime.remove_pod("pod-1")
    assert world.runtime.create("pod-2", "main", world.env(ref)).kernel == cpus


def test_claims_show_their_cpus_or_why_they_have_none(world: World) -> None:
    placed, hopeless = world.claim(2), world.claim(30)
    cpus = world.prepare(placed)
    with pytest.raises(Refused):
        world.prepare(hopeless)

    def ready(ref: ClaimRef) -> Any:
        found = world.api.get("resourceclaims", ref.namespace, ref.name)
        assert found is not None
        return [(each["conditions"][0]["status"], each.get("data")) for each in found["status"].get("devices", ())]

    ((status, data),) = until(lambda: ready(placed))
    assert (status, data["claimCPUs"]) == ("True", format_cpuset(cpus))
    assert until(lambda: ready(hopeless)) == [("False", None)]


def test_nobody_waits_for_the_api_server_any_longer_when_the_driver_ends(world: World) -> None:
    """An answer of which a byte comes now and then would otherwise take 15 seconds, and a watch minutes."""
    assert world.driver is not None
    api, ends = world.driver.api, list[str]()
    world.api.fault = lambda method, path: (200, b" " * 10_000, 0, 0.05)

    class WaitsForIt:
        def start(self) -> None: ...

        def stop(self) -> None:
            with pytest.raises(RefusedError) as refused:
                api.get("default", "cpus", patience=600.0)
            ends.append(refused.value.message)

    world.driver._run(WaitsForIt())
    world.go_down()
    assert "the driver is ending" in ends[0]
    with pytest.raises(RefusedError, match="the driver is ending"):
        api.get("default", "cpus")
    assert not {"slices", "events", "release"} & {thread.name for thread in threading.enumerate()}


def test_what_was_answered_without_the_api_server_is_looked_at_when_that_is_back(world: World) -> None:
    ref = world.claim(2, pod="pod-1")
    cpus = world.prepare(ref)
    world.reserve(ref, "pod-2")
    world.api.away()
    assert world.prepare(ref) == cpus
    assert world.entry(ref).pods == {"pod-1"}
    world.api.back()
    until(lambda: world.entry(ref).pods == {"pod-2"})
    assert world.runtime.create("pod-2", "main", world.env(ref)).kernel == cpus


def test_preparing_a_claim_anew_after_it_was_allocated_anew_needs_its_container_to_end(world: World) -> None:
    ref = world.claim(4)
    world.prepare(ref)
    container = world.run(ref)
    document = world.api.get("resourceclaims", ref.namespace, ref.name) or {}
    document["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"dra.cpu/cpu": "6"}
    world.api.put_claim(document)
    with pytest.raises(Refused, match="ClaimChanged"):
        world.prepare(ref)
    world.runtime.remove(container.id)
    assert len(world.prepare(ref)) == 6


def test_unpreparing_what_was_never_prepared_succeeds(world: World) -> None:
    ref = ClaimRef("00000000-0000-0000-0000-000000000001", "default", "never")
    assert world.kubelet.unprepare(ref) == {ref.uid: ""}


def test_cpus_are_solved_by_cp_sat_when_its_process_is_ready(short_path: Path) -> None:
    with World(short_path, MACHINE, solverTimeLimit=10).running() as world:
        assert world.driver is not None
        solver = world.driver._running[1]
        import time

        end = time.monotonic() + 60
        while solver.pid is None and time.monotonic() < end:  # type: ignore[attr-defined]
            time.sleep(0.05)
        ref = world.claim(8)
        world.prepare(ref)
        assert world.driver.ledger.snapshot.entries[ref.uid].engine == "dp"


def test_while_claims_of_another_driver_cannot_be_taken_over_nothing_new_is_prepared(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their containers run on CPUs that the ledger does not know yet."""
    held = World(short_path, MACHINE, solverTimeLimit=0)
    (short_path / "cdi").mkdir()
    taken_over = Entry(uid="00000000-0000-0000-0000-0000000000aa", cpuset=frozenset(range(16)))
    CDI(short_path / "cdi").write(taken_over)
    kept = Entry(uid="00000000-0000-0000-0000-0000000000bb", cpuset=frozenset({31}))
    files = Files(short_path / "k/plugins/dra.cpu/ledger")
    files.read()
    files.write(kept)
    uids, broken = CDI.uids, [True]

    def unreadable(cdi: CDI) -> Iterator[str]:
        if broken[0]:
            raise OSError(errno.EIO, "Input/output error", str(cdi.folder))
        return uids(cdi)

    monkeypatch.setattr(CDI, "uids", unreadable)
    with held.running() as world:
        assert world.driver is not None
        world.driver.watch.look()
        with pytest.raises(Refused, match=r"Degraded.*Input/output error"):
            world.prepare(world.claim(4))
        broken[0] = False
        world.driver.watch.look()
        assert taken_over.uid in world.driver.ledger.snapshot.entries
        assert not world.prepare(world.claim(4)) & taken_over.cpuset


def test_a_single_cpu_has_its_name_again_after_it_was_reserved_while_a_claim_held_it(short_path: Path) -> None:
    """Else the scheduler would take it for another, and promise it again."""
    world = World(short_path, MACHINE, solverTimeLimit=0, cpuDeviceMode="individual", reservedCPUs="0")
    names = short_path / "k/plugins/dra.cpu/devices.json"
    with world.running():
        before = json.loads(names.read_text())
        ref = world.claim(1, device="cpudev030")
        (cpu,) = world.prepare(ref)
        for reserved in (f"{cpu}", "1"):
            world.go_down()
            world.settings["reservedCPUs"] = reserved
            world.come_up()
        after = json.loads(names.read_text())
    assert before["cpudev030"] == cpu
    assert {name: after[name] for name in before} == before
    assert after == {**before, "cpudev031": 0}


def test_a_ledger_that_somebody_removes_is_whole_again_as_soon_as_its_folder_is_there(world: World) -> None:
    ref = world.claim(4)
    cpus = world.prepare(ref)
    assert world.driver is not None
    folder = world.driver.folders.ledger
    for each in (folder, world.driver.cdi.folder):
        shutil.rmtree(each)
    world.driver.watch.look()
    assert "FoldersUnwritable" in world.driver.conditions.current()
    for each in (folder, world.driver.cdi.folder):
        each.mkdir()
    world.driver.watch.look()
    assert not world.driver.conditions.current()
    world.die()
    world.come_up()
    assert world.prepare(ref) == cpus
    assert world.run(ref).kernel == cpus


@pytest.mark.parametrize("name", ["registration", "socket"])
def test_a_socket_that_somebody_removes_comes_back(world: World, name: str) -> None:
    driver, ref = world.driver, world.claim(2)
    assert driver is not None
    getattr(driver.folders, name).unlink()
    driver._kubelet.look()
    world.kubelet.close()
    world.kubelet.register()
    assert len(world.prepare(ref)) == 2
    assert page(world, "/healthz") == (200, "ok\n")


def test_a_driver_that_stays_deaf_is_not_alive(world: World) -> None:
    """The kubelet then starts it again."""
    driver = world.driver
    assert driver is not None
    shutil.rmtree(driver.folders.registry)
    for _ in range(TRIES + 1):
        with suppress(BadInputError):
            driver._kubelet.look()
    assert page(world, "/healthz") == (503, f"ended: {driver.folders.registration.name}\n")
    shutil.rmtree(driver.folders.ledger)
    driver.watch.look()
    assert page(world, "/healthz") == (200, "ok\n"), "a new start would have lost the ledger"


def test_a_moment_without_threads_leaves_the_driver_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork bomb in the driver's cgroup, or a node that has run out of process numbers."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        files = {frame.filename for frame in traceback.extract_stack()}
        if any("/driver/" in file and "/tests/" not in file for file in files) or any(
            file.endswith("grpc/_server.py") for file in files
        ):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with suppress(grpc.RpcError):
                world.kubelet.prepare(world.claim(2), timeout=5)
    assert len(world.prepare(world.claim(2))) == 2
    world.kubelet.close()
    world.kubelet.register()
    assert len(world.prepare(world.claim(2))) == 2
    assert page(world, "/healthz") == (200, "ok\n")


def test_cpus_of_a_foreign_claim_stay_withheld_while_a_container_names_it(short_path: Path) -> None:
    foreign = Entry(uid="00000000-0000-0000-0000-0000000000aa", cpuset=frozenset(range(8)))
    ours = Entry(uid="00000000-0000-0000-0000-0000000000bb", cpuset=frozenset({3}))
    files = Files(short_path / "k/plugins/dra.cpu/ledger")
    files.read()
    files.write(ours)
    (short_path / "cdi").mkdir()
    CDI(short_path / "cdi").write(foreign)
    world = World(short_path, MACHINE, solverTimeLimit=0)
    stray = world.runtime.create("stray", "main", (f"{variable(foreign.uid)}=0-7",))
    with world.running():
        assert world.driver is not None
        CDI(short_path / "cdi").remove(foreign.uid)
        world.driver.watch.look()
        assert world.driver.ledger.snapshot.held == foreign.cpuset
        world.runtime.remove(stray.id)
        world.driver.watch.look()
        assert world.driver.ledger.snapshot.held == ours.cpuset


SIGNALLED = """
import signal, threading, time
from driver import serve

class Driver:
    def __init__(self, config, root):
        self.stopped = threading.Event()

    def start(self):
        threading.Thread(target=strike, daemon=True).start()
        return True

    def stop(self):
        print("stopped", flush=True)

def strike():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)

serve.Driver = Driver
serve.run(None)
"""


def test_a_signal_that_another_thread_gets_ends_the_driver_too() -> None:
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED], cwd=root, capture_output=True, timeout=60, check=True
    )
    assert ended.stdout == b"stopped\n"


LIMITED = """
import resource
from driver.serve import allow_descriptors
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
allow_descriptors()
soft, kept = resource.getrlimit(resource.RLIMIT_NOFILE)
assert (soft, kept) == (min(hard, 65536), hard), (soft, kept)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
allow_descriptors()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, 300)
"""


def test_the_driver_allows_itself_as_many_descriptors_as_it_may_have() -> None:
    subprocess.run([sys.executable, "-c", LIMITED], cwd=Path(__file__).parents[2], timeout=60, check=True)


HUNG = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from driver import serve
from driver.logs import configure

class Driver:
    def __init__(self, config, root):
        self.stopped = threading.Event()

    def start(self):
        print("up", flush=True)
        if sys.argv[1] == "start":
            threading.Event().wait()
        if sys.argv[1] == "pool":
            ThreadPoolExecutor(1).submit(threading.Event().wait)
        return True

    def stop(self):
        if sys.argv[1] == "stop":
            threading.Event().wait()

configure()
serve.ENDING = 0.2
serve.Driver = Driver
serve.run(None)
"""


@pytest.mark.parametrize("hangs", ["start", "stop", "pool"])
def test_a_driver_that_is_told_to_end_ends_whatever_hangs(hangs: str) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", HUNG, hangs], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"has not come to its end" in said


def test_reserved_cpus_that_are_all_there_are_end_the_driver_only_where_no_claim_lives(short_path: Path) -> None:
    world = World(short_path, MACHINE, solverTimeLimit=0)
    with world.running():
        shared, ref = world.runtime.create("other", "web"), world.claim(4)
        cpus = world.prepare(ref)
        own = world.run(ref)
        world.go_down()
        world.settings["reservedCPUs"] = "0-31"
        driver = world.come_up()
        assert driver.conditions.current().keys() == {"TopologyChanged"}
        wanted = {own.id: cpus, shared.id: world.topology.online - cpus}
        until(lambda: world.runtime.masks() == wanted)
        world.runtime.remove_pod(f"pod-{ref.uid}")
        assert world.kubelet.unprepare(ref) == {ref.uid: ""}
        world.go_down()
        with pytest.raises(BadInputError, match="reservedCPUs: 0-31 are all CPUs there are; leave some to give"):
            world.come_up()
