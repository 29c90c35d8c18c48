"""Handlers with messages that no runtime should send, and under load."""

import random
import threading

import pytest

from driver.nri import listing, sight
from driver.nri.glance import Glance
from driver.nri.registry import Registry
from driver.nri.traits import read_version
from driver.nri.ttrpc import CallError
from driver.protos import nri_pb2 as nri
from models import format_cpuset, to_mask
from tests.driver.nri.book import Book
from tests.driver.nri.conftest import WAIT, eventually
from tests.driver.nri.fake_runtime import NotCreated
from tests.driver.nri.wire import PluginError


def ask(scene, method, message):
    return scene.fake.wait_for_plugin().end.call(method, message, WAIT)


def test_a_method_that_is_not_known_is_refused_and_an_event_that_is_not_is_passed_over(scenes):
    scene = scenes().connect()
    with pytest.raises(PluginError, match="has no method 'UpdatePodSandbox'"):
        ask(scene, "UpdatePodSandbox", nri.Empty())
    ask(scene, "StateChange", nri.StateChangeEvent(event=99))
    ask(scene, "Shutdown", nri.Empty())
    assert scene.fake.create("pod-x", "shared").kernel == scene.pool()


def test_events_of_containers_that_nobody_knows_do_no_harm(scenes):
    scene = scenes().connect()
    for event in nri.Event.values():
        ask(scene, "StateChange", nri.StateChangeEvent(event=event))
    ask(scene, "StopContainer", nri.StopContainerRequest())
    ask(scene, "UpdateContainer", nri.UpdateContainerRequest())
    assert scene.driver.settle(WAIT) in (True, False)
    assert scene.fake.create("pod-x", "shared").kernel == scene.pool()


def test_a_payload_that_cannot_be_read_fails_its_call_alone(scenes):
    scene = scenes().connect()
    nonsense = nri.ConfigureRequest(config="\x0a\x7f")
    with pytest.raises(PluginError, match="CreateContainer cannot be read"):
        ask(scene, "CreateContainer", nonsense)
    assert scene.fake.create("pod-x", "shared").kernel == scene.pool()


def test_a_list_without_end_is_given_up(scenes, monkeypatch):
    monkeypatch.setattr(listing, "MOST", 10)
    scene = scenes(chunk=3)
    for number in range(11):
        scene.fake.create(f"pod-{number}", "shared")
    scene.driver = scene.make()
    scene.driver.start()
    eventually(lambda: any("more than 10 pods and containers" in fault for fault in scene.fake.faults))
    assert not scene.driver.wait(0.1)


def test_what_comes_after_a_list_was_given_up_is_neither_kept_nor_taken_for_a_list(monkeypatch):
    monkeypatch.setattr(listing, "MOST", 10)
    registry = Registry(lambda: Book().snapshot, lambda *_: None)
    asked = listing.Listing(registry, Glance(lambda _: None), afresh=True)
    containers = [nri.Container(id=str(n), state=nri.CONTAINER_RUNNING) for n in range(6)]
    part = nri.SynchronizeRequest(containers=containers, more=True).SerializeToString()
    assert asked.take(part).more
    for _ in range(3):
        with pytest.raises(CallError, match="more than 10"):
            asked.take(part)
        assert asked._sights == []
    with pytest.raises(CallError, match="more than 10"):
        asked.take(nri.SynchronizeRequest(containers=containers[:1]).SerializeToString())
    assert not registry.synchronized


def test_more_variables_than_a_pod_has_claims_are_refused_and_not_kept(scenes):
    scene = scenes().connect()
    scene.hold("u", [4, 5])
    flood = [f"DRA_CPUSET_{number:06d}=1" for number in range(20_000)]
    with pytest.raises(NotCreated, match="more than 256 claims"):
        scene.fake.create("pod-a", "main", ["DRA_CPUSET_u=4-5", *flood])
    kept = sight.variables(["DRA_CPUSET_u=4-5"] * 20_000)
    assert kept == (("DRA_CPUSET_u", "4-5"),)
    assert len(sight.variables(flood)) == sight.MOST_VARIABLES + 1


@pytest.mark.parametrize("name", ["", "c" * 64, "ü" * 50_000])
@pytest.mark.parametrize("pin", [sight.Pin(0), sight.Pin(to_mask(range(0, 4096, 2)), to_mask(range(0, 1024, 2)))])
def test_no_update_is_bigger_than_it_is_taken_to_be(name, pin):
    update = sight.Update(name, pin)
    for ignore in (True, False):
        alone = nri.CreateContainerResponse(update=[update.message(ignore_failure=ignore)])
        assert alone.ByteSize() <= update.size


def test_changes_that_no_message_holds_come_in_several(scenes, monkeypatch):
    monkeypatch.setattr(sight, "ROOM", 200)
    scene = scenes()
    made = [scene.fake.create(f"pod-{number}", "shared") for number in range(30)]
    scene.connect()
    scene.settle()
    assert {each.kernel for each in made} == {scene.pool()}
    scene.hold("u", [4, 5])
    scene.settle()
    assert scene.fake.create("pod-a", "main", ["DRA_CPUSET_u=4-5"]).kernel == {4, 5}
    assert {each.kernel for each in made} == {scene.pool()}


def test_a_container_without_a_pod_or_a_name_gets_the_pool(scenes):
    scene = scenes().connect()
    request = nri.CreateContainerRequest(container=nri.Container(id="x", env=["A=1", "", "=", "DRA_CPUSET"]))
    reply = nri.CreateContainerResponse.FromString(ask(scene, "CreateContainer", request))
    assert reply.adjust.linux.resources.cpu.cpus == format_cpuset(scene.pool())


def test_very_long_names_do_not_make_long_messages(scenes):
    scene = scenes().connect()
    pod = nri.PodSandbox(id="s", name="n" * 100_000, uid="u" * 100_000, namespace="default")
    container = nri.Container(id="x", name="c" * 100_000, env=["DRA_CPUSET_" + "v" * 100_000 + "=1"])
    with pytest.raises(PluginError) as refusal:
        ask(scene, "CreateContainer", nri.CreateContainerRequest(pod=pod, container=container))
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.12.1", (0, 12, 1)),
        ("v0.13.0-rc.1", (0, 13, 0)),
        ("1.0", (1, 0, 0)),
        ("", ()),
        ("x.1", ()),
        ("9" * 99, ()),
    ],
)
def test_versions_are_read_or_there_is_none(text, version):
    assert read_version(text) == version


@pytest.mark.parametrize("version", ["", "0.12.1"])
def test_creates_at_once_while_claims_come_and_go(scenes, version):
    scene = scenes(nri_version=version).connect()
    failures, over, refused = [], threading.Event(), []

    def create(seed):
        random_ = random.Random(seed)
        made = []
        while not over.is_set():
            try:
                made.append(scene.fake.create(f"pod-{seed}", "shared"))
            except NotCreated as error:
                refused.append(str(error))
            if len(made) > 4:
                scene.fake.remove(made.pop(random_.randrange(len(made))).id)

    def watch():
        while not over.is_set():
            with scene.fake._lock:
                masks = scene.fake.masks()
            for claim in [each for each in list(scene.fake.containers.values()) if each.env]:
                held = set(map(int, claim.env[0].partition("=")[2].split(",")))
                mine = masks.get(claim.id)
                others = [mask for name, mask in masks.items() if name != claim.id]
                if mine is not None and (mine != held or any(mask & held for mask in others)):
                    failures.append((mine, others))

    threads = [threading.Thread(target=create, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    carried = 0
    for number in range(12):
        uid, cpus = f"u{number}", sorted(random.Random(number).sample(range(1, 16), 3))
        scene.hold(uid, cpus)
        scene.driver.settle(5)
        try:
            claim = scene.fake.create("pod-a", f"main-{uid}", {f"DRA_CPUSET_{uid}": ",".join(map(str, cpus))})
            carried += 1
            scene.fake.remove(claim.id)
        except NotCreated as error:
            refused.append(str(error))
        scene.book.forget(uid)
        scene.driver.changed()
    over.set()
    for thread in threads:
        thread.join()
    scene.settle()
    assert failures == []
    assert carried >= 4, refused
    assert scene.fake.faults == []
    assert scene.fake.deadlocks == 0
