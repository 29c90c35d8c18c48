"""The process that answers the runtime, for real, whatever becomes of it."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from driver.ledger.entry import Owner
from driver.nri import link, remote, standing
from driver.nri.messages import Settings, change
from driver.nri.process import ADDRESS_SPACE, Side
from tests.driver.nri.book import Book
from tests.driver.nri.conftest import WAIT, ApartScene, eventually
from tests.driver.nri.fake_runtime import NotCreated

UID = "0b0a-1"
ALL, POOL = frozenset(range(16)), frozenset(range(1, 16))


def env(uid, cpus):
    return {f"DRA_CPUSET_{uid}": cpus}


@pytest.fixture
def apart(scenes):
    """Makes scenes whose driver's side is a process."""
    return lambda **options: scenes(ApartScene, **options)


@pytest.fixture
def faulty(monkeypatch):
    """From now on processes have this fault; without a name they have none again."""

    def set_fault(fault):
        monkeypatch.setenv("FAULT", fault)
        monkeypatch.setattr(link, "PROGRAM", "tests.driver.nri.faulty_process" if fault else "driver.nri.process")

    return set_fault


@pytest.fixture
def stopped():
    """Stops the process of a scene; it goes on at the end of the test at the latest."""
    pids = []

    def stop(scene):
        pids.append(scene.driver.pid)
        os.kill(pids[-1], signal.SIGSTOP)
        return pids[-1]

    yield stop
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGCONT)


def alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def is_replaced(scene, former):
    return scene.driver.pid not in (None, former) and scene.driver.wait(0)


def test_containers_are_answered_as_they_are_by_the_driver_itself(apart):
    scene = apart().connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.hold(UID, [4, 5], mems={0})
    scene.settle()
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    assert (owner.kernel, owner.mems, shared.kernel) == ({4, 5}, "0", POOL - {4, 5})
    eventually(lambda: scene.book.snapshot.entries[UID].owner == Owner(pod_uid="pod-a", container="main"))
    assert scene.driver.carries(UID)
    assert scene.driver.names(UID)
    scene.fake.remove(owner.id)
    eventually(lambda: not scene.driver.carries(UID))
    assert not scene.driver.names(UID)
    scene.book.forget(UID)
    scene.driver.changed()
    scene.settle()
    assert shared.kernel == POOL
    assert scene.conditions.current() == {}
    assert scene.fake.faults == []


def test_the_owner_that_the_process_tells_is_in_its_own_ledger_again(apart):
    """Else a second container would be let in once the first has stopped."""
    scene = apart().connect()
    scene.hold(UID, [4, 5], pods=("pod-a", "pod-b"))
    scene.settle()
    first = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    eventually(lambda: scene.book.snapshot.entries[UID].owner is not None)
    eventually(lambda: scene.driver._link.acknowledged == scene.book.snapshot.version)
    scene.fake.remove(first.id)
    with pytest.raises(NotCreated, match="belongs to container 'main' of pod pod-a"):
        scene.fake.create("pod-b", "main", env(UID, "4-5"))


def test_masks_that_were_put_right_are_counted_and_pods_that_are_not_named_are_asked_for(apart):
    scene = apart()
    scene.fake.create("pod-x", "shared")
    scene.connect()
    eventually(lambda: scene.recorder.masks == 1)
    scene.hold(UID, [4, 5])
    scene.settle()
    with pytest.raises(NotCreated, match="not reserved for this pod"):
        scene.fake.create("pod-z", "main", env(UID, "4-5"))
    eventually(lambda: scene.looked_at == [UID])


def test_a_process_that_is_ready_joins_the_runtime_only_when_it_is_told_to(apart):
    scene = apart().prepare()
    eventually(lambda: scene.driver._link is not None and scene.driver._link._open)
    assert not scene.driver.wait(0.3)
    assert not scene.driver.knows(0)
    assert scene.fake.connections == 0
    assert scene.driver.carries(UID)
    scene.join()
    assert scene.driver.wait(WAIT)


def test_what_the_runtime_says_becomes_conditions_of_the_driver(apart, monkeypatch):
    scene = apart().connect()
    shared = scene.fake.create("pod-x", "shared")
    for _ in range(2):
        scene.fake.update_resources(shared.id, "0-3")
    eventually(lambda: "StaticCPUManager" in scene.conditions.current())
    scene.fake.stop_serving()
    eventually(lambda: not scene.driver.wait(0))
    assert not scene.driver.settle(0.1)
    eventually(lambda: "NRI is enabled" in scene.conditions.current().get("NRIAway", ""))
    scene.fake.start_serving()
    eventually(lambda: scene.conditions.current().keys() == {"StaticCPUManager"})
    assert scene.driver.wait(WAIT)


# The ledger is known there before anybody is answered


def test_a_process_that_does_not_run_knows_nothing_new(apart, stopped):
    scene = apart().connect()
    pid = stopped(scene)
    assert scene.driver.knows(0), "nothing has changed"
    scene.hold(UID, [4, 5])
    assert not scene.driver.knows(0.2)
    os.kill(pid, signal.SIGCONT)
    assert scene.driver.knows(WAIT)
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_what_is_known_is_what_was_true_when_it_was_asked_for(apart, faulty):
    """Not that some version is known, nor that this one was sent."""
    faulty("dawdle")
    scene = apart().prepare()
    eventually(lambda: scene.driver._link is not None and scene.driver._link._open)
    scene.join()
    assert not scene.driver.knows(0.1)
    assert scene.driver.wait(WAIT)
    for number in range(1, 4):
        scene.hold(f"u{number}", [number])
        assert not scene.driver.knows(0.1)
    assert scene.driver.knows(WAIT)
    for number in range(1, 4):
        assert scene.fake.create("pod-a", f"m{number}", env(f"u{number}", f"{number}")).kernel == {number}


def test_a_process_that_takes_over_must_have_the_runtimes_list(apart):
    scene = apart().connect()
    scene.fake.stop_serving()
    former = scene.driver.pid
    os.kill(former, signal.SIGKILL)
    eventually(lambda: scene.driver.pid not in (None, former) and scene.driver._link.acknowledged >= 0)
    assert not scene.driver.knows(0.3)
    scene.fake.start_serving()
    assert scene.driver.knows(WAIT)
    assert scene.driver.wait(0)


def test_a_change_that_nobody_has_announced_is_known_as_well(apart):
    scene = apart().connect()
    scene.book.hold(UID, [4, 5])
    assert scene.driver.knows(WAIT)
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_new_process_knows_nothing_until_it_has_been_told(apart, faulty):
    scene = apart().connect()
    scene.hold(UID, [4, 5])
    assert scene.driver.knows(WAIT)
    faulty("dawdle")
    former = scene.driver.pid
    os.kill(former, signal.SIGKILL)
    eventually(lambda: not scene.driver.wait(0))
    assert not scene.driver.knows(0.1)
    assert scene.driver.knows(WAIT)
    assert scene.driver.pid != former


def test_a_version_is_acknowledged_after_the_process_goes_by_it(tmp_path):
    seen = []

    class Box:
        def put(self, make):
            seen.append((make().acknowledged, side._newest().version))

    book = Book()
    book.hold(UID, [4, 5])
    settings = Settings(nri_socket=tmp_path / "nri.sock", cgroup_root=tmp_path, log_level=20)
    side = Side(settings, Box())
    side.take(change(None, book.snapshot))
    before = book.snapshot
    book.hold("u2", [6])
    side.take(change(before, book.snapshot))
    side.stop()
    assert seen == [(1, 1), (2, 2)]


def test_changes_from_many_threads_arrive_in_their_order(apart):
    scene, lock, known = apart().connect(), threading.Lock(), []

    def hold(number):
        with lock:
            scene.book.hold(f"u{number}", [number], pods=(f"pod-{number}",))
        scene.driver.changed()
        known.append(scene.driver.knows(WAIT))

    threads = [threading.Thread(target=hold, args=(number,)) for number in range(1, 15)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert known == [True] * 14
    scene.settle()
    for uid, entry in scene.book.snapshot.entries.items():
        (cpu,) = entry.cpuset
        assert scene.fake.create(f"pod-{cpu}", "main", env(uid, f"{cpu}")).kernel == {cpu}


def test_a_ledger_of_500_claims_is_told_to_a_new_process(apart):
    scene = apart(cpus=range(1024))
    scene.book.resize(range(1024))
    for number in range(1, 501):
        scene.book.hold(f"u{number}", [number], pods=[f"pod-{each}" for each in range(number, number + 50)])
    scene.connect()
    former = scene.driver.pid
    for uid in ("u1", "u250", "u500"):
        number = int(uid[1:])
        assert scene.fake.create(f"pod-{number}", "main", env(uid, f"{number}")).kernel == {number}
    os.kill(former, signal.SIGKILL)
    eventually(lambda: is_replaced(scene, former))
    assert scene.driver.knows(WAIT)
    assert scene.driver.carries("u250")
    assert scene.fake.create("pod-77", "main", env("u77", "77")).kernel == {77}


# Whatever becomes of it


def test_a_process_that_is_killed_is_replaced_and_all_is_put_right(apart):
    """Containers that are made meanwhile start as they are; whatever they do must not last."""
    scene = apart().connect()
    scene.hold(UID, [4, 5])
    scene.settle()
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    shared = [scene.fake.create("pod-x", "before")]
    for number in range(5):
        former = scene.driver.pid
        os.kill(former, signal.SIGKILL)
        shared.append(scene.fake.create(f"pod-{number}", "meanwhile"))
        eventually(lambda former=former: is_replaced(scene, former))
        assert len(scene.answering()) <= 1
        scene.settle()
        assert owner.kernel == {4, 5}
        assert {each.kernel for each in shared} == {POOL - {4, 5}}
        assert scene.driver.carries(UID)
    assert scene.conditions.current() == {}


def test_a_container_that_is_being_made_while_the_process_ends_is_put_right(apart, stopped):
    scene = apart().connect()
    scene.hold(UID, [4, 5])
    scene.settle()
    pid, made = stopped(scene), []
    creation = threading.Thread(target=lambda: made.append(scene.fake.create("pod-x", "shared")))
    creation.start()
    os.kill(pid, signal.SIGKILL)
    creation.join()
    eventually(lambda: is_replaced(scene, pid))
    scene.settle()
    assert made[0].kernel == POOL - {4, 5}
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_that_it_has_ended_is_a_condition_until_the_next_one_has_the_runtimes_list(apart, faulty, monkeypatch):
    monkeypatch.setattr(standing, "AWAY_AFTER", 0.1)
    scene = apart().connect()
    shared = scene.fake.create("pod-x", "shared")
    for _ in range(2):
        scene.fake.update_resources(shared.id, "0-3")
    eventually(lambda: scene.conditions.current().keys() == {"StaticCPUManager"})
    faulty("quit")
    os.kill(scene.driver.pid, signal.SIGKILL)
    eventually(lambda: scene.conditions.current().keys() == {"StaticCPUManager", "NRIAway"})
    assert scene.conditions.current()["NRIAway"] == standing.ENDED
    assert not scene.driver.settle(0.2)
    faulty("")
    eventually(lambda: scene.conditions.current() == {})
    assert scene.driver.wait(0)


def test_while_nobody_can_say_a_claim_may_be_carried(apart, faulty, stopped, monkeypatch):
    monkeypatch.setattr(link, "GRACE", 0.2)
    scene = apart().connect()
    assert not scene.driver.carries(UID)
    assert not scene.driver.names(UID)
    pid = stopped(scene)
    assert scene.driver.carries(UID)
    assert scene.driver.names(UID)
    faulty("silent")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not scene.driver.wait(0))
    assert scene.driver.carries(UID)
    eventually(lambda: is_replaced(scene, pid))
    assert scene.driver.carries(UID)
    assert scene.driver.names(UID)


def test_an_answer_that_nobody_has_fetched_yet_does_not_hinder_the_next_process(apart):
    scene = apart().connect()
    former, fetched = scene.driver.pid, Future()
    fetched.set_result(True)
    scene.driver._link._asked[10**6] = fetched
    os.kill(former, signal.SIGKILL)
    eventually(lambda: is_replaced(scene, former))


def test_who_waits_for_an_answer_is_not_left_waiting_when_the_process_ends(apart, stopped):
    scene = apart().connect()
    pid, answers = stopped(scene), []
    asking = threading.Thread(target=lambda: answers.append(scene.driver.settle(600)))
    asking.start()
    eventually(lambda: scene.driver._link._asked)
    os.kill(pid, signal.SIGKILL)
    asking.join(WAIT)
    assert answers == [False]


@pytest.mark.parametrize("fault", ["babble", "quit", "hold lock", "lose thread"])
def test_a_process_with_a_fault_is_replaced(apart, faulty, monkeypatch, fault):
    monkeypatch.setattr(link, "HUNG", 0.5)
    monkeypatch.setattr(link, "PERIOD", 0.1)
    faulty(fault)
    scene = apart().prepare()
    eventually(lambda: scene.driver.pid)
    former = scene.driver.pid
    scene.join()
    eventually(lambda: not alive(former))
    faulty("")
    assert scene.driver.wait(WAIT)
    scene.hold(UID, [4, 5])
    scene.settle()
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_process_that_hangs_is_replaced(apart, stopped, monkeypatch):
    monkeypatch.setattr(link, "HUNG", 0.5)
    scene = apart().connect()
    former = stopped(scene)
    eventually(lambda: is_replaced(scene, former))
    assert not alive(former)
    assert len(scene.answering()) == 1


def test_a_process_that_does_not_read_is_ended(apart, stopped, monkeypatch):
    """So that a Prepare, which sends, waits for a second at most."""
    monkeypatch.setattr(link, "HUNG", 600.0)
    scene = apart().connect()
    former = stopped(scene)
    pods = [f"pod-{number:0100}" for number in range(10_000)]
    scene.hold(UID, [4, 5], pods=pods)
    assert scene.driver.knows(WAIT)
    assert not alive(former)


def test_the_driver_is_not_alive_when_no_process_is_to_be_had(apart, faulty, monkeypatch):
    scene = apart().connect()
    assert scene.driver.alive()
    monkeypatch.setattr(remote, "SILENCE", 2.0)
    faulty("never ready")
    os.kill(scene.driver.pid, signal.SIGKILL)
    eventually(lambda: not scene.driver.alive())
    faulty("")
    eventually(scene.driver.alive)


def test_the_end_of_the_driver_leaves_the_runtime_and_the_masks_alone(apart):
    scene = apart().connect()
    shared = scene.fake.create("pod-x", "shared")
    pid = scene.driver.pid
    scene.disconnect()
    assert not alive(pid)
    assert scene.answering() == []
    assert shared.kernel == POOL


def test_a_process_that_hangs_does_not_keep_the_driver_from_ending(apart, stopped, monkeypatch):
    monkeypatch.setattr(remote, "LEAVING", 0.3)
    monkeypatch.setattr(link, "HUNG", 600.0)
    scene = apart().connect()
    pid = stopped(scene)
    scene.disconnect()
    assert not alive(pid)


def test_a_signal_to_all_processes_of_the_driver_leaves_the_order_of_their_ends_to_the_driver(apart):
    scene = apart().connect()
    pid = scene.driver.pid
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    scene.hold(UID, [4, 5])
    assert scene.driver.knows(WAIT)
    assert scene.driver.pid == pid
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_driver_that_was_never_started_ends(apart):
    apart().make().stop()


def test_the_process_is_small_prompt_and_has_none_of_our_files(apart):
    scene = apart().connect()
    pid = scene.driver.pid
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert f"Max address space         {ADDRESS_SPACE}" in limits
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert len(list(Path(f"/proc/{pid}/fd").iterdir())) <= 3 + len(("the driver", "the runtime", "its list"))


HEAVY = ("cpusat", "solver", "topologies", "numpy", "networkx", "ortools", "grpc", "lightkube", "httpx2")


def test_it_loads_nothing_that_is_big():
    script = f"import sys, driver.nri.process; print(sorted(sys.modules.keys() & set({HEAVY})))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


PARENT = """
import sys, time
from pathlib import Path
from driver.conditions import Conditions
from driver.nri.messages import Settings
from driver.nri.remote import RemoteRuntime
from tests.driver.nri.book import Book
from tests.driver.recorder import Recorder
folder, book = Path(sys.argv[1]), Book()
settings = Settings(nri_socket=folder / "nri.sock", cgroup_root=folder / "cgroup", log_level=20)
runtime = RemoteRuntime(settings, Conditions(), Recorder())
runtime.start()
runtime.join(lambda: book.snapshot, book.own, print)
assert runtime.wait(60)
print(runtime.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_it_ends_with_the_driver_even_if_it_is_stopped(apart, is_stopped):
    """So that a new driver's process never answers beside it."""
    scene = apart()
    command = [sys.executable, "-c", PARENT, str(scene.fake.path.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
    eventually(lambda: not alive(pid))
    eventually(lambda: scene.answering() == [])
