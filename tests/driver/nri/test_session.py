"""Connections that do not come about, or take their time."""

import logging
import socket
import threading
import time

import pytest

from driver.nri import mux, runtime, session
from driver.nri.glance import Glance
from driver.nri.registry import Registry
from driver.nri.session import relay
from driver.protos import nri_pb2 as nri
from tests.driver.nri.book import Book
from tests.driver.nri.conftest import WAIT, eventually
from tests.driver.nri.wire import PluginEnd


class Silent:
    """A runtime that accepts, registers, and then says no more."""

    def __init__(self, path, *, registers=True):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(4)
        self.path, self.registers, self.ends = path, registers, []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.ends.append(PluginEnd(sock, self._serve))

    def _serve(self, method, payload):
        if not self.registers:
            time.sleep(WAIT)
        return nri.Empty()

    def close(self):
        self.listener.close()
        for end in self.ends:
            end.close()


@pytest.fixture
def silent(tmp_path):
    made = []

    def make(**options):
        made.append(Silent(tmp_path / "silent.sock", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kernel(cgroup):
    return None


def registry():
    book = Book()
    return Registry(lambda: book.snapshot, book.own)


def test_a_list_that_does_not_come_is_given_up_after_its_turn(silent, monkeypatch, caplog):
    monkeypatch.setattr(session, "TURN", 0.5)
    monkeypatch.setattr(session, "LONG", 0.1)
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError, match="no list"):
        relay(silent().path, registry(), kernel, Glance(kernel), threading.Event())
    assert "a container that stops slowly may be why" in caplog.text


def test_a_registration_that_is_not_answered_is_given_up_after_its_turn(silent, monkeypatch):
    monkeypatch.setattr(session, "TURN", 0.3)
    with pytest.raises(TimeoutError, match="not registered"):
        relay(silent(registers=False).path, registry(), kernel, Glance(kernel), threading.Event())


@pytest.mark.parametrize("registers", [True, False])
def test_the_driver_stops_at_once_whatever_the_runtime_owes_it(scenes, silent, registers):
    deaf = silent(registers=registers)
    scene = scenes()
    scene.fake.path, path = deaf.path, scene.fake.path
    scene.driver = scene.make()
    scene.driver.start()
    eventually(lambda: deaf.ends)
    done = threading.Event()
    threading.Thread(target=lambda: (scene.driver.stop(), done.set()), daemon=True).start()
    assert done.wait(WAIT / 3)
    scene.driver, scene.fake.path = None, path


def test_a_runtime_that_talks_nonsense_is_left_and_tried_again(scenes, silent, monkeypatch):
    monkeypatch.setattr(mux, "PATIENCE", 0.3)
    babbler = silent()
    scene = scenes()
    scene.fake.path, path = babbler.path, scene.fake.path
    scene.driver = scene.make()
    scene.driver.start()
    for count in (1, 2):
        eventually(lambda count=count: len(babbler.ends) >= count)
        babbler.ends[count - 1].raw(b"\xff" * 64)
    eventually(lambda: len(babbler.ends) >= 3)
    scene.disconnect()
    scene.fake.path = path


def test_a_runtime_that_lets_nobody_in_is_away(scenes, silent, monkeypatch):
    monkeypatch.setattr(runtime, "AWAY_AFTER", 0.1)
    scene = scenes()
    scene.fake.path, path = silent(registers=False).path, scene.fake.path
    scene.driver = scene.make()
    scene.driver.start()
    eventually(lambda: "NRIAway" in scene.conditions.current())
    scene.disconnect()
    scene.fake.path = path


def test_a_socket_path_that_is_too_long_is_an_error_like_any_other(tmp_path):
    with pytest.raises(OSError, match="path too long"):
        relay(tmp_path / ("x" * 200), registry(), kernel, Glance(kernel), threading.Event())


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), ValueError("a defect")])
def test_a_connection_that_cannot_be_made_is_tried_again_whatever_the_reason(scenes, monkeypatch, error):
    monkeypatch.setattr(runtime, "LAST_RETRY", 0.05)
    real, failures = session.Connection, [error] * 3

    def connection(sock, answer):
        if failures:
            raise failures.pop()
        return real(sock, answer)

    monkeypatch.setattr(session, "Connection", connection)
    scene = scenes().connect()
    assert failures == []
    assert scene.driver.alive()
    assert scene.fake.create("pod-x", "shared").kernel == scene.pool()


def test_the_driver_is_alive_while_its_threads_are_whether_or_not_the_runtime_is_there(scenes):
    scene = scenes()
    scene.fake.stop_serving()
    driver = scene.driver = scene.make()
    assert not driver.alive()
    driver.start()
    assert driver.alive()
    scene.fake.start_serving()
    assert driver.wait(WAIT)
    assert driver.alive()
    # Again and again: a plugin that was just being let in comes after the first.
    eventually(lambda: scene.fake.stop_serving() or not driver.wait(0))
    assert driver.alive()
    scene.disconnect()
    assert not driver.alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("part", ["_reconciler", "_glance"])
def test_the_driver_is_not_alive_without_one_of_its_threads(scenes, monkeypatch, part):
    scene = scenes().connect()

    def end(*_):
        raise SystemExit

    monkeypatch.setattr(getattr(scene.driver, part), {"_reconciler": "_turn", "_glance": "_answer"}[part], end)
    scene.driver._glance({"x": "/x"}, 0.1)
    eventually(lambda: not scene.driver.alive())
