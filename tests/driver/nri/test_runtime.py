"""The driver's side of NRI against a runtime's side over a real socket."""

from dataclasses import replace

import pytest

from driver.ledger.entry import Owner
from driver.nri import dues, reconcile, static_manager
from driver.nri import runtime as runtime_module
from driver.nri.traits import freezes
from driver.protos import nri_pb2 as nri
from tests.driver.nri.book import Book
from tests.driver.nri.conftest import WAIT, eventually
from tests.driver.nri.fake_runtime import NotCreated

UID = "0b0a-1"


def env(uid, cpus):
    return {f"DRA_CPUSET_{uid}": cpus}


def test_a_claims_container_gets_its_cpus_and_all_others_the_pool(scene):
    before = scene.fake.create("pod-x", "shared")
    assert before.kernel == set(range(1, 16))
    scene.hold(UID, [4, 5], mems={0})
    scene.settle()
    assert before.kernel == set(range(1, 16)) - {4, 5}
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    after = scene.fake.create("pod-y", "shared")
    assert (owner.kernel, owner.mems) == ({4, 5}, "0")
    assert (after.kernel, after.mems) == (before.kernel, "")
    eventually(lambda: scene.book.snapshot.entries[UID].owner == Owner(pod_uid="pod-a", container="main"))
    assert scene.driver.carries(UID)
    scene.fake.remove(owner.id)
    eventually(lambda: not scene.driver.carries(UID))
    scene.book.forget(UID)
    scene.driver.changed()
    scene.settle()
    assert before.kernel == after.kernel == set(range(1, 16))
    assert scene.recorder.masks == 0
    assert scene.fake.faults == []
    assert scene.fake.deadlocks == 0


def test_a_container_of_two_claims_runs_on_the_cpus_of_both(scene):
    scene.hold("u1", [2, 3], mems={0})
    scene.hold("u2", [8])
    scene.settle()
    both = scene.fake.create("pod-a", "main", env("u1", "2-3") | env("u2", "8"))
    assert (both.kernel, both.mems) == ({2, 3, 8}, "0")


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ([f"DRA_CPUSET_{UID}=4-5", f"DRA_CPUSET_{UID}=6"], "twice with different values"),
        ([f"DRA_CPUSET_{UID}=6", f"DRA_CPUSET_{UID}=4-5"], "twice with different values"),
        ([f"DRA_CPUSET_{UID}=4-6"], "says CPUs 4-6, but the claim holds 4-5"),
        ([f"DRA_CPUSET_{UID}="], "says CPUs none"),
        ([f"DRA_CPUSET_{UID}"], "says CPUs none"),
        ([f"DRA_CPUSET_{UID}=4,x"], "is not a CPU number"),
        ([f"DRA_CPUSET_{UID}=5-4"], "runs backwards"),
        ([f"DRA_CPUSET_{UID}=" + "4," * 300_000 + "5"], "longer than any list"),
        (["DRA_CPUSET_other=4-5"], "not prepared on this node"),
        (["DRA_CPUSET_=4-5"], "names no claim"),
        (["DRA_CPUSET_../../x=4-5"], "names no claim"),
    ],
)
def test_a_spoofed_doubled_or_malformed_variable_is_refused(scenes, variables, why):
    scene = scenes().connect()
    scene.hold(UID, [4, 5])
    scene.settle()
    with pytest.raises(NotCreated, match=why):
        scene.fake.create("pod-a", "main", variables)
    assert not scene.driver.carries(UID)
    scene.fake.create("pod-a", "main", [f"DRA_CPUSET_{UID}=4-5", f"DRA_CPUSET_{UID}=5,4"])


def test_a_pod_that_the_claim_is_not_reserved_for_is_refused(scene):
    scene.hold(UID, [4, 5])
    scene.settle()
    with pytest.raises(NotCreated, match="not reserved for this pod"):
        scene.fake.create("pod-b", "main", env(UID, "4-5"))


def test_the_pods_of_a_claim_are_read_anew_when_a_container_of_another_pod_names_it(scene):
    scene.hold(UID, [4, 5])
    scene.settle()
    for wrong in ("4-5", "4"):
        with pytest.raises(NotCreated):
            scene.fake.create("pod-b", "main", env(UID, wrong))
    scene.fake.create("pod-a", "main", env(UID, "4-5"))
    with pytest.raises(NotCreated, match="a claim is for one container"):
        scene.fake.create("pod-a", "second", env(UID, "4-5"))
    eventually(lambda: scene.looked_at)
    assert scene.looked_at == [UID]
    scene.hold(UID, [4, 5], pods=("pod-b",))
    scene.fake.remove_pod("pod-a")
    assert scene.fake.create("pod-b", "main", env(UID, "4-5")).kernel == {4, 5}


def test_the_pods_of_a_claim_are_read_anew_for_a_container_that_was_made_unseen(scenes):
    scene = scenes()
    scene.book.hold(UID, [4, 5])
    scene.fake.create("pod-b", "main", env(UID, "4-5"))
    scene.connect()
    eventually(lambda: scene.looked_at == [UID])


def test_a_second_container_is_refused_and_the_first_may_restart(scene):
    scene.hold(UID, [4, 5], pods=("pod-a", "pod-b"))
    scene.settle()
    first = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    for pod, name in (("pod-a", "sidecar"), ("pod-b", "main")):
        with pytest.raises(NotCreated, match="a claim is for one container"):
            scene.fake.create(pod, name, env(UID, "4-5"))
    scene.fake.remove(first.id)
    eventually(lambda: scene.book.snapshot.entries[UID].owner is not None)
    with pytest.raises(NotCreated, match="belongs to container 'main' of pod pod-a"):
        scene.fake.create("pod-b", "main", env(UID, "4-5"))
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_restart_before_the_old_container_is_known_to_have_ended_is_let_in(scene):
    scene.hold(UID, [4, 5])
    scene.settle()
    scene.fake.create("pod-a", "main", env(UID, "4-5"))
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


@pytest.mark.parametrize("how", ["stop_pod", "remove_pod"])
def test_another_pod_may_carry_the_claim_once_the_first_is_gone(scene, how):
    scene.hold(UID, [4, 5], pods=("pod-a", "pod-b"))
    scene.settle()
    scene.fake.create("pod-a", "main", env(UID, "4-5"))
    eventually(lambda: scene.book.snapshot.entries[UID].owner is not None)
    getattr(scene.fake, how)("pod-a")
    assert scene.fake.create("pod-b", "main", env(UID, "4-5")).kernel == {4, 5}
    eventually(lambda: scene.book.snapshot.entries[UID].owner.pod_uid == "pod-b")


def test_ownership_outlives_a_restart_of_the_driver(scenes):
    scene = scenes().connect()
    scene.hold(UID, [4, 5], pods=("pod-a", "pod-b"))
    scene.settle()
    first = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    eventually(lambda: scene.book.snapshot.entries[UID].owner is not None)
    scene.disconnect()
    scene.fake.stop(first.id)
    scene.connect()
    with pytest.raises(NotCreated, match="belongs to container"):
        scene.fake.create("pod-b", "main", env(UID, "4-5"))


def test_an_adopted_claim_goes_to_the_container_that_runs_already_and_to_no_other(scenes):
    scene = scenes()
    scene.book.hold(UID, [4, 5], pods=(), adopted=True)
    running = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    scene.connect()
    scene.settle()
    assert running.kernel == {4, 5}
    eventually(lambda: scene.book.snapshot.entries[UID].owner == Owner(pod_uid="pod-a", container="main"))
    with pytest.raises(NotCreated, match="not reserved"):
        scene.fake.create("pod-b", "main", env(UID, "4-5"))
    scene.fake.remove(running.id)
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_an_adopted_claim_that_nobody_carries_is_given_to_nobody_unnamed(scenes):
    scene = scenes().connect()
    scene.hold(UID, [4, 5], pods=(), adopted=True)
    scene.settle()
    with pytest.raises(NotCreated, match="not reserved"):
        scene.fake.create("pod-a", "main", env(UID, "4-5"))


def test_containers_made_while_the_driver_is_away_are_put_right(scenes):
    scene = scenes().connect()
    old = scene.fake.create("pod-x", "old")
    scene.settle()
    scene.disconnect()
    assert old.kernel == set(range(1, 16)), "the driver leaves masks alone when it stops"
    scene.book.hold(UID, [4, 5])
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    second = scene.fake.create("pod-a", "second", env(UID, "4-5"))
    spoofer = scene.fake.create("pod-z", "spoofer", env(UID, "4-5"))
    waiting = scene.fake.create("pod-y", "waiting", start=False)
    assert owner.kernel == set(range(16))
    scene.connect()
    scene.settle()
    assert owner.kernel == {4, 5}
    assert old.kernel == second.kernel == spoofer.kernel == scene.pool()
    scene.fake.start(waiting.id)
    assert waiting.kernel == scene.pool()
    eventually(lambda: scene.recorder.masks >= 4)


def test_a_container_made_unseen_with_a_wrong_variable_is_not_started(scenes):
    scene = scenes()
    spoofer = scene.fake.create("pod-z", "spoofer", env(UID, "4-5"), start=False)
    scene.connect()
    with pytest.raises(NotCreated, match="not prepared"):
        scene.fake.start(spoofer.id)


def test_containers_that_ended_while_the_driver_was_away_are_forgotten(scenes):
    scene = scenes().connect()
    scene.hold(UID, [4, 5], pods=("pod-a", "pod-b"))
    scene.settle()
    scene.fake.create("pod-a", "main", env(UID, "4-5"))
    eventually(lambda: scene.book.snapshot.entries[UID].owner is not None)
    scene.fake.stop_serving()
    scene.fake.remove_pod("pod-a")
    scene.fake.start_serving()
    eventually(lambda: not scene.driver.carries(UID))
    assert scene.fake.create("pod-b", "main", env(UID, "4-5")).kernel == {4, 5}


def test_lost_updates_are_found_out_and_repaired(scenes):
    left = {}
    scene = scenes(lose=lambda name: left.setdefault(name, 1) and left.update({name: left[name] - 1}) is None)
    scene.connect()
    shared = [scene.fake.create(f"pod-{number}", "shared") for number in range(5)]
    scene.settle()
    scene.hold(UID, [4, 5])
    scene.settle()
    assert all(each.kernel == scene.pool() for each in shared)
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}
    eventually(lambda: scene.recorder.masks == 5)


def test_updates_are_not_lost_by_closing_the_second_connection_early(scenes):
    scene = scenes(apply_delay=0.02).connect()
    shared = [scene.fake.create(f"pod-{number}", "shared") for number in range(15)]
    scene.hold(UID, [4, 5])
    scene.settle()
    assert all(each.kernel == scene.pool() for each in shared)


def test_masks_that_cannot_be_read_are_confirmed_by_a_fresh_list(scenes):
    scene = scenes(apply_delay=0.02).connect()
    scene.fake.kernel_hidden = True
    shared = [scene.fake.create(f"pod-{number}", "shared") for number in range(4)]
    scene.settle()
    scene.hold(UID, [4, 5])
    scene.settle()
    assert all(each.kernel == scene.pool() for each in shared)
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_mask_that_somebody_changes_behind_our_back_is_put_back(scenes, monkeypatch):
    monkeypatch.setattr("driver.nri.reconcile.PERIOD", 0.3)
    scene = scenes().connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    shared.kernel = frozenset(range(16))
    eventually(lambda: shared.kernel == scene.pool())
    eventually(lambda: scene.recorder.masks == 1)


def test_a_claims_container_is_refused_while_others_may_run_on_its_cpus(scenes, monkeypatch, caplog):
    monkeypatch.setattr("driver.nri.reconcile.COMPLAIN_AT", 0.1)
    stuck = []
    scene = scenes(lose=lambda name: name in stuck).connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    stuck.append(shared.id)
    scene.hold(UID, [4, 5])
    eventually(lambda: not scene.driver.settle(0.1))
    with pytest.raises(NotCreated, match=r"container 'shared' of pod default/pod-pod-x may still run on its CPUs"):
        scene.fake.create("pod-a", "main", env(UID, "4-5"))
    eventually(lambda: "may run on CPUs 1-15, whatever the runtime is told" in caplog.text)
    stuck.clear()
    scene.settle()
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_the_start_is_refused_if_somebody_got_in_the_way_after_the_creation(scenes, monkeypatch):
    monkeypatch.setattr(dues, "UNDERWAY", 0.0)
    stuck = []
    scene = scenes(lose=lambda name: name in stuck).connect()
    late = scene.fake.create("pod-x", "late", start=False)
    scene.hold(UID, [4, 5])
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"), start=False)
    late.cpus = "1-15"
    stuck.append(late.id)
    scene.fake.start(late.id)
    with pytest.raises(NotCreated, match="may still run on its CPUs"):
        scene.fake.start(owner.id)


def test_a_container_with_a_mask_from_before_is_not_started_onto_a_running_claims_cpus(scenes):
    scene = scenes().connect()
    late = scene.fake.create("pod-x", "late", start=False)
    scene.hold(UID, [4, 5])
    scene.settle()
    scene.fake.create("pod-a", "main", env(UID, "4-5"))
    late.cpus = "1-15"
    with pytest.raises(NotCreated, match=f"has CPUs 4-5, which claim {UID} holds"):
        scene.fake.start(late.id)
    assert scene.fake.create("pod-x", "late").kernel == scene.pool()


def test_a_claim_that_goes_between_creation_and_start_fails_the_start(scene):
    scene.hold(UID, [4, 5])
    scene.settle()
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"), start=False)
    scene.book.forget(UID)
    with pytest.raises(NotCreated, match="no longer prepared"):
        scene.fake.start(owner.id)


def test_updates_of_others_are_answered_with_our_mask(scene):
    scene.hold(UID, [4, 5], mems={1})
    scene.settle()
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    shared = scene.fake.create("pod-x", "shared")
    scene.fake.update_resources(owner.id, "0-15")
    scene.fake.update_resources(shared.id)
    assert (owner.kernel, owner.mems) == ({4, 5}, "1")
    assert shared.kernel == scene.pool()
    scene.settle()
    assert scene.conditions.current() == {}


def test_a_static_cpu_manager_is_known_by_its_updates(scenes, monkeypatch):
    monkeypatch.setattr(static_manager, "QUIET", 1.0)
    scene = scenes().connect()
    shared = [scene.fake.create(f"pod-{number}", "shared") for number in range(3)]
    for each in shared[:2]:
        scene.fake.update_resources(each.id, "0-3")
    for each in shared[:2]:
        scene.fake.update_resources(each.id)
    scene.settle()
    assert scene.conditions.current() == {}
    scene.fake.update_resources(shared[2].id, "0-3")
    eventually(lambda: "cpuManagerPolicy: none" in scene.conditions.current().get("StaticCPUManager", ""))
    assert all(each.kernel == scene.pool() for each in shared)
    eventually(lambda: scene.driver.settle(1) and scene.conditions.current() == {})


def test_two_updates_of_one_container_within_a_minute_are_no_accident(scenes):
    scene = scenes().connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.fake.update_resources(shared.id, "0-3")
    scene.fake.update_resources(shared.id, "0-3")
    eventually(lambda: "StaticCPUManager" in scene.conditions.current())


def test_a_list_in_parts_is_put_together(scenes):
    scene = scenes(chunk=3)
    made = [scene.fake.create(f"pod-{number}", "shared") for number in range(8)]
    scene.connect()
    scene.settle()
    assert all(each.kernel == scene.pool() for each in made)
    assert scene.fake.faults == []


def test_newer_runtimes_are_told_directly_and_older_ones_never(scenes):
    newer, older = scenes(nri_version="0.12.1").connect(), scenes(nri_version="0.12.0").connect()
    for scene in (newer, older):
        shared = scene.fake.create("pod-x", "shared")
        scene.settle()
        connections = scene.fake.connections
        scene.hold(UID, [4, 5])
        scene.settle()
        assert shared.kernel == scene.pool()
        assert scene.fake.deadlocks == 0
        scene.extra = scene.fake.connections - connections
    assert older.extra >= 1
    assert newer.extra <= 1, "one more look at the list after connecting, no more"


def test_a_reply_that_cannot_be_read_is_not_taken_for_done_and_the_list_is_asked_for(scenes, monkeypatch, caplog):
    scene = scenes(nri_version="0.12.1").connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    nonsense = nri.ContainerUpdate(container_id="x")
    monkeypatch.setattr(scene.fake, "unsolicited", lambda _: nonsense)
    connections = scene.fake.connections
    scene.hold(UID, [4, 5])
    scene.settle()
    assert shared.kernel == scene.pool()
    assert scene.fake.connections > connections
    assert "cannot be read" in caplog.text
    assert "defect" not in caplog.text


FREEZING = {"called": ("containerd", "2.1.9")}


def test_where_a_connection_may_freeze_the_node_replies_carry_changes(scenes, monkeypatch):
    monkeypatch.setattr(runtime_module, "PATIENCE", 600.0)
    monkeypatch.setattr(runtime_module, "RELIST_AFTER", 600.0)
    scene = scenes(**FREEZING).connect()
    shared = scene.fake.create("pod-x", "shared")
    connections = scene.fake.connections
    scene.hold(UID, [4, 5])
    assert scene.driver.settle(WAIT)
    assert shared.kernel == set(range(1, 16)), "nobody needs the CPUs yet"
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"))
    assert (owner.kernel, shared.kernel) == ({4, 5}, scene.pool())
    scene.fake.stop(owner.id)
    scene.book.forget(UID)
    scene.driver.changed()
    scene.fake.remove(scene.fake.create("pod-y", "passing").id)
    eventually(lambda: shared.kernel == set(range(1, 16)))
    assert scene.fake.connections == connections


@pytest.mark.parametrize(
    "options",
    [
        {"called": ("containerd", "1.7.24")},
        {"called": ("containerd", "2.0.2")},
        {"called": ("cri-o", "1.34.0")},
        {"called": ("containerd", "2.2.9"), "nri_version": "0.12.1"},
    ],
)
def test_where_nobody_is_kept_waiting_by_it_a_change_is_told_without_patience(scenes, monkeypatch, options):
    monkeypatch.setattr(runtime_module, "PATIENCE", 600.0)
    scene = scenes(**options).connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.hold(UID, [4, 5])
    eventually(lambda: shared.kernel == scene.pool())
    scene.book.forget(UID)
    scene.driver.changed()
    eventually(lambda: shared.kernel == set(range(1, 16)))


def test_neighbours_are_told_as_soon_as_a_prepare_is_answered(scenes, monkeypatch):
    monkeypatch.setattr(reconcile, "LULL", 600.0)
    scene = scenes().connect()
    shared = scene.fake.create("pod-x", "shared")
    for uid, cpus in (("u1", [4]), ("u2", [5])):
        scene.hold(uid, cpus)
        assert scene.driver.settle(WAIT)
        eventually(lambda: shared.kernel == scene.pool())


def test_where_no_reply_carries_a_change_it_is_told_after_a_while(scenes, monkeypatch):
    monkeypatch.setattr(runtime_module, "PATIENCE", 0.3)
    scene = scenes(**FREEZING).connect()
    shared = scene.fake.create("pod-x", "shared")
    scene.hold(UID, [4, 5])
    eventually(lambda: shared.kernel == scene.pool())


def test_whoever_is_refused_for_others_masks_does_not_wait_out_the_patience(scenes, monkeypatch):
    monkeypatch.setattr(runtime_module, "PATIENCE", 600.0)
    monkeypatch.setattr(dues, "UNDERWAY", 0.0)
    scene = scenes(**FREEZING).connect()
    waiting = scene.fake.create("pod-x", "waiting", start=False)
    scene.hold(UID, [4, 5])
    owner = scene.fake.create("pod-a", "main", env(UID, "4-5"), start=False)
    waiting.cpus = "1-15"
    scene.fake.start(waiting.id)
    with pytest.raises(NotCreated, match="may still run"):
        scene.fake.start(owner.id)
    eventually(lambda: waiting.kernel == scene.pool())
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


@pytest.mark.parametrize(
    ("name", "version", "freezing"),
    [
        ("containerd", "1.7.24~ds1", False),
        ("containerd", "1.7.26", True),
        ("containerd", "v2.0.2", False),
        ("containerd", "v2.0.3", True),
        ("containerd", "2.1.9+unknown", True),
        ("containerd", "", False),
        ("cri-o", "1.34.0", False),
    ],
)
def test_which_runtimes_a_connection_may_freeze(name, version, freezing):
    assert freezes(nri.ConfigureRequest(runtime_name=name, runtime_version=version)) == freezing


def test_containers_that_are_in_line_are_not_told_again_when_the_driver_comes_back(scenes):
    scene = scenes().connect()
    scene.hold("u2", [4, 5])
    bound = scene.fake.create("pod-a", "main", env("u2", "4-5"))
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    scene.disconnect()
    told = len(shared.updates), len(bound.updates)
    scene.connect()
    scene.settle()
    assert (len(shared.updates), len(bound.updates)) == told


def test_the_driver_comes_back_after_the_runtime_does(scene):
    shared = scene.fake.create("pod-x", "shared")
    scene.fake.restart()
    scene.fake.wait_for_plugin()
    scene.hold(UID, [4, 5])
    scene.settle()
    assert shared.kernel == scene.pool()
    assert scene.fake.create("pod-a", "main", env(UID, "4-5")).kernel == {4, 5}


def test_a_runtime_that_is_away_is_a_condition(scenes, monkeypatch):
    monkeypatch.setattr(runtime_module, "AWAY_AFTER", 0.3)
    scene = scenes().connect()
    scene.fake.stop_serving()
    eventually(lambda: "NRI is enabled" in scene.conditions.current().get("NRIAway", ""))
    assert not scene.driver.settle(0.1)
    scene.fake.start_serving()
    eventually(lambda: scene.conditions.current() == {})
    assert scene.driver.settle(WAIT)


def test_what_is_carried_is_not_known_before_the_first_list(scenes):
    scene = scenes()
    scene.fake.stop_serving()
    scene.driver = scene.make()
    assert scene.driver.carries(UID)
    scene.driver.start()
    assert not scene.driver.wait(0.2)
    scene.fake.start_serving()
    assert scene.driver.wait(WAIT)
    assert not scene.driver.carries(UID)


def test_a_pool_that_is_empty_changes_nothing_and_keeps_claims_apart(scenes):
    scene = scenes()
    scene.book = Book(cpus=range(4), reserved=())
    scene.connect()
    shared = scene.fake.create("pod-x", "shared")
    waiting = scene.fake.create("pod-x", "waiting", start=False)
    scene.hold(UID, [0, 1, 2, 3])
    assert scene.pool() == frozenset()
    assert scene.driver.settle(0.0), "there is nothing to wait for"
    before = shared.kernel
    with pytest.raises(NotCreated, match=r"no CPU is left for containers without a claim \(claims hold CPUs 0-3"):
        scene.fake.create("pod-a", "main", env(UID, "0-3"))
    with pytest.raises(NotCreated, match="no CPU is left"):
        scene.fake.create("pod-y", "late")
    scene.fake.update_resources(shared.id, "0-15")
    assert (shared.kernel, shared.cpus) == (before, "0-3"), "it keeps what it has"
    scene.fake.start(waiting.id)
    scene.book.forget(UID)
    scene.driver.changed()
    scene.settle()
    assert scene.fake.create("pod-y", "late").kernel == {0, 1, 2, 3}


def test_nobody_starts_on_a_running_claims_cpus_where_there_are_no_others(scenes, monkeypatch):
    monkeypatch.setattr(dues, "UNDERWAY", 0.0)
    scene = scenes()
    scene.book = Book(cpus=range(4), reserved=())
    scene.connect()
    waiting = scene.fake.create("pod-x", "waiting", start=False)
    scene.hold(UID, [0, 1, 2, 3])
    scene.fake.create("pod-a", "main", env(UID, "0-3"))
    with pytest.raises(NotCreated, match="no CPU is left"):
        scene.fake.start(waiting.id)


def test_files_in_quarantine_leave_containers_the_reserved_cpus(scenes):
    scene = scenes()
    scene.book.snapshot = replace(scene.book.snapshot, quarantined=frozenset(range(16)))
    scene.connect()
    assert scene.fake.create("pod-x", "shared").kernel == {0}


def test_where_files_in_quarantine_may_name_all_cpus_no_container_is_let_in(scenes):
    scene = scenes()
    scene.book = Book(reserved=())
    scene.book.snapshot = replace(scene.book.snapshot, quarantined=frozenset(range(16)))
    running = scene.fake.create("pod-x", "running")
    scene.connect()
    with pytest.raises(NotCreated, match="files of the ledger in quarantine name CPUs 0-15"):
        scene.fake.create("pod-y", "late")
    assert running.kernel == set(range(16)), "there is nowhere to move it"
