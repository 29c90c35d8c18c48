"""Containers to which the kubelet's own CPU manager has given CPUs."""

import pytest

from driver.nri.sight import Pin, Sight
from models import to_mask
from tests.driver.nri.conftest import ApartScene, Scene, eventually
from tests.driver.nri.test_registry import Table

EVERYONE = frozenset(range(16))


@pytest.fixture(params=[Scene, ApartScene])
def before(request, scenes):
    """A node before the driver comes: a container with CPUs of its own from the kubelet, and one on the others.

    The runtime is answered by the driver itself, or by a process of its own.
    """
    scene = scenes(request.param)
    scene.dpdk, scene.web = scene.fake.create("dpdk", "main"), scene.fake.create("web", "main")
    scene.fake.update_resources(scene.dpdk.id, "2-3")
    scene.fake.update_resources(scene.web.id, "0-1,4-15")
    return scene


def test_a_container_keeps_the_cpus_that_the_kubelet_gave_it_when_the_driver_comes(before):
    before.book.give(dpdk={2, 3})
    told = len(before.dpdk.updates)
    before.connect()
    assert before.driver.settle(30)
    assert before.dpdk.kernel == {2, 3}
    assert len(before.dpdk.updates) == told, "nobody but the kubelet updates it"
    assert before.web.kernel == EVERYONE - {0, 2, 3}


def test_a_containers_mask_alone_is_no_evidence(before):
    before.connect()
    before.settle()
    assert before.dpdk.kernel == before.web.kernel == EVERYONE - {0}


def test_a_container_that_was_moved_before_it_was_known_gets_its_cpus_back(before):
    before.connect()
    before.settle()
    before.book.give(dpdk={2, 3})
    before.driver.changed()
    eventually(lambda: before.dpdk.kernel == {2, 3})
    eventually(lambda: before.web.kernel == EVERYONE - {0, 2, 3})


def test_the_kubelets_updates_of_its_own_containers_pass(before):
    before.book.give(dpdk={2, 3})
    before.connect()
    before.fake.update_resources(before.dpdk.id, "2-5")
    assert before.dpdk.kernel == {2, 3, 4, 5}
    before.fake.update_resources(before.web.id, "0-1,6-15")
    assert before.web.kernel == before.book.snapshot.pool
    assert before.driver.settle(30)
    assert before.dpdk.kernel == {2, 3, 4, 5}, "newer than what the kubelet said when it was asked"


def test_a_new_container_gets_what_the_kubelet_asks_for_if_it_is_known_to_have_given_it(before):
    before.book.give(dpdk={2, 3}, later={4, 5})
    before.connect()
    assert before.fake.create("later", "main", cpus="4-5").kernel == {4, 5}
    assert before.fake.create("other", "main", cpus="6-7").kernel == before.book.snapshot.pool


def test_cpus_that_a_claim_holds_stay_the_claims_whatever_the_kubelet_gives(before):
    before.book.hold("claim-1", {3, 4})
    before.book.give(dpdk={2, 3}, all={3, 4})
    before.connect()
    greedy = before.fake.create("all", "main", cpus="3-4")
    own = before.fake.create("pod-a", "main", {"DRA_CPUSET_claim-1": "3-4"})
    assert before.driver.settle(30)
    assert own.kernel == {3, 4}
    assert before.dpdk.kernel == {2}
    assert greedy.kernel == before.web.kernel == EVERYONE - {0, 2, 3, 4}
    before.fake.update_resources(before.dpdk.id, "2-3")
    assert before.dpdk.kernel == {2}


@pytest.mark.parametrize("name", ["dpdk/main", "default/pod-dpdk/main", "dpdk/*", "default/pod-dpdk/*"])
def test_a_container_is_known_by_its_pods_uid_or_name_and_by_its_own_or_its_pod_alone(before, name):
    before.book.give()
    before.book.snapshot.foreign.cpus[name] = frozenset({2, 3})
    before.connect()
    assert before.driver.settle(30)
    assert before.dpdk.kernel == {2, 3}


@pytest.mark.parametrize("name", ["dpdk/other", "web/main", "default/dpdk/main", "pod-dpdk/main"])
def test_other_containers_are_others(before, name):
    before.book.give()
    before.book.snapshot.foreign.cpus[name] = frozenset({2, 3})
    before.connect()
    assert before.driver.settle(30)
    assert before.dpdk.kernel == EVERYONE - {0, 2, 3}


def test_while_nobody_knows_containers_are_left_as_they_are_unless_they_are_on_a_claims_cpus(before):
    before.book.hold("claim-1", {4, 5})
    before.book.give(known=False)
    before.connect()
    assert before.driver.settle(30)
    assert before.dpdk.kernel == {2, 3}
    assert before.web.kernel == EVERYONE - {0, 4, 5}
    new = before.fake.create("new", "main")
    assert new.kernel == EVERYONE - {0, 4, 5}
    before.fake.update_resources(before.dpdk.id, "1-2")
    assert before.dpdk.kernel == {1, 2}
    before.fake.update_resources(before.dpdk.id, "3-5")
    assert before.dpdk.kernel == EVERYONE - {0, 4, 5}
    before.book.give(dpdk={2, 3})
    before.driver.changed()
    before.fake.update_resources(before.dpdk.id, "2-3")
    eventually(lambda: before.dpdk.kernel == {2, 3})
    assert before.driver.settle(30)
    assert before.recorder.masks <= 1, "what is left alone was not put right"


def test_what_was_left_alone_comes_into_the_pool_once_the_kubelet_is_known_to_have_given_nothing(before):
    before.book.give(known=False)
    before.connect()
    before.fake.update_resources(before.web.id)
    assert before.web.kernel == {0, 1, *range(4, 16)}, "still as it was"
    before.book.give()
    before.driver.changed()
    before.settle()


@pytest.mark.parametrize("kind", [Scene, ApartScene])
def test_whoever_names_cpus_for_a_container_makes_the_driver_ask_the_kubelet(scenes, kind):
    scene = scenes(kind).connect()
    quiet = scene.fake.create("quiet", "main")
    scene.fake.update_resources(quiet.id)
    scene.settle()
    assert scene.suspected == []
    scene.fake.create("new", "main", cpus="2-3")
    eventually(lambda: len(scene.suspected) == 1)
    scene.fake.update_resources(quiet.id, "2-3")
    eventually(lambda: len(scene.suspected) == 2)


def test_a_mask_that_the_kubelet_set_may_arrive_late():
    table = Table()
    table.book.give(x={1, 2})
    before, asked = to_mask({1, 2}), to_mask({1, 2, 3})
    table.run("x", kernel=before)
    table.look("x", before)
    sight = Sight("x", "x", "main", sandbox="x")
    assert table.registry.update(sight, asked) == Pin(asked)
    table.look("x", before)
    assert table.get("x").reach == asked
