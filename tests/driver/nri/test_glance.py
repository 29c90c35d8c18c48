"""Masks that may take their time: whoever asks for them does not."""

import threading

import pytest

from driver.nri.glance import Glance
from models import to_mask
from tests.driver.nri.conftest import WAIT, eventually
from tests.driver.nri.fake_runtime import NotCreated

UID = "0b0a-1"
ENV = {f"DRA_CPUSET_{UID}": "4-5"}


class Gate:
    """A kernel whose files keep their readers for as long as it is shut, but for those of ``quick``."""

    def __init__(self, read):
        self.read, self.quick = read, set()
        self.opened, self.waits = threading.Event(), threading.Event()
        self.opened.set()

    def __call__(self, cgroup):
        if cgroup not in self.quick and not self.opened.is_set():
            self.waits.set()
            assert self.opened.wait(WAIT)
        return self.read(cgroup)


@pytest.fixture
def gate():
    gate = Gate(lambda cgroup: {"/a": to_mask({1}), "/b": None}.get(cgroup))
    yield gate
    gate.opened.set()


@pytest.fixture
def glance(gate):
    glance = Glance(gate)
    glance.start()
    yield glance
    gate.opened.set()
    glance.stop()
    eventually(lambda: not glance.alive())


def test_masks_are_read_and_one_that_is_not_there_is_said_not_to_be(glance):
    assert glance({"a": "/a", "b": "/b"}, WAIT) == {"a": to_mask({1}), "b": None}
    assert glance({}, 0.0) == {}


def test_what_is_not_read_in_time_is_left_out(glance, gate):
    gate.quick.add("/a")
    gate.opened.clear()
    assert glance({"a": "/a", "b": "/b"}, 0.2) == {"a": to_mask({1})}


def test_a_question_that_was_given_up_keeps_no_later_one_waiting(glance, gate):
    gate.opened.clear()
    assert glance({str(number): "/b" for number in range(1000)}, 0.05) == {}
    gate.opened.set()
    assert glance({"a": "/a"}, WAIT) == {"a": to_mask({1})}


def test_a_reader_that_fails_is_asked_again(caplog):
    def read(cgroup):
        raise RuntimeError(cgroup)

    glance = Glance(read)
    glance.start()
    assert glance({"a": "/a"}, WAIT) == {}
    assert glance({"a": "/a"}, WAIT) == {}
    assert glance.alive()
    assert "defect while masks were read" in caplog.text
    glance.stop()


def shut(scene):
    """From now on every reader waits: the reconciler's, and the handlers'."""
    gate = scene.fake.kernel
    gate.opened.clear()
    return gate


@pytest.fixture
def scene(scenes):
    scene = scenes()
    scene.fake.kernel = Gate(scene.fake.kernel)
    yield scene.connect()
    scene.fake.kernel.opened.set()


def test_no_handler_waits_for_a_reader_that_the_kernel_keeps(scene, monkeypatch):
    monkeypatch.setattr("driver.nri.reconcile.PERIOD", 0.05)
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    gate = shut(scene)
    assert gate.waits.wait(WAIT), "the reconciler reads every mask now and then"
    connections = scene.fake.connections
    late = scene.fake.create("pod-y", "late")
    scene.fake.update_resources(late.id, "0-3")
    scene.fake.remove(late.id)
    assert late.cpus == "1-15"
    assert scene.fake.connections == connections, "the runtime has not dropped the driver"
    assert scene.fake.faults == []
    gate.opened.set()
    scene.hold(UID, [4, 5])
    scene.settle()
    assert shared.kernel == scene.pool()


def test_a_claims_container_is_refused_while_nobody_can_see_whether_others_have_left(scene):
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    gate = shut(scene)
    scene.hold(UID, [4, 5])
    with pytest.raises(NotCreated, match="container 'shared' of pod default/pod-pod-x may still run on its CPUs"):
        scene.fake.create("pod-a", "main", ENV)
    assert scene.fake.faults == []
    gate.opened.set()
    scene.settle()
    assert scene.fake.create("pod-a", "main", ENV).kernel == {4, 5}
    assert shared.kernel == scene.pool()


def test_a_list_that_comes_while_no_mask_can_be_read_is_answered(scene, monkeypatch):
    monkeypatch.setattr("driver.nri.listing.READING", 0.1)
    shared = scene.fake.create("pod-x", "shared")
    scene.settle()
    gate = shut(scene)
    scene.fake.restart()
    scene.fake.wait_for_plugin()
    assert [each.id for each in scene.driver._registry.known()] == [shared.id]
    gate.opened.set()
    scene.settle()
