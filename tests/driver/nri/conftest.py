"""A driver's end and a runtime's end of NRI, connected."""

import logging
import time
from functools import partial

import pytest

from driver.conditions import Conditions
from driver.nri import session
from driver.nri.messages import Settings
from driver.nri.remote import RemoteRuntime
from driver.nri.runtime import NRIRuntime
from driver.nri.session import INDEX
from tests.driver.nri.book import Book
from tests.driver.nri.fake_runtime import FakeRuntime
from tests.driver.recorder import Recorder

WAIT = 30.0
"""Seconds: long, for the machine may be loaded. Nothing waits so long unless it fails."""


class Scene:
    """A fake runtime, a ledger in memory, and the driver's side between them."""

    def __init__(self, folder, **options):
        self.fake = FakeRuntime(folder / "nri.sock", **options)
        self.book = Book()
        self.conditions, self.recorder = Conditions(), Recorder()
        self.driver, self.looked_at, self.suspected = None, [], []

    def make(self):
        """A driver's side with an empty memory."""
        book, fake = self.book, self.fake
        return NRIRuntime(
            fake.path,
            lambda: book.snapshot,
            book.own,
            self.conditions,
            self.recorder,
            fake.kernel,
            self.looked_at.append,
            suspect=partial(self.suspected.append, 1),
        )

    def connect(self):
        """Start it."""
        self.driver = self.make()
        self.driver.start()
        assert self.driver.wait(WAIT)
        self.fake.wait_for_plugin()
        return self

    def disconnect(self):
        """Stop it."""
        if self.driver is not None:
            self.driver.stop()
            self.driver = None

    def hold(self, uid, cpus, pods=("pod-a",), **more):
        """Prepare a claim, as the ledger and the runtime see it."""
        self.book.hold(uid, cpus, pods, **more)
        self.driver.changed()

    def settle(self):
        """Wait until all is in line, and nobody is in a claim's way."""
        eventually(self.is_in_line)
        assert self.driver.settle(WAIT)

    def is_in_line(self):
        """Whether every container has the pool, or all CPUs of a claim and none of the pool."""
        pool, held = self.pool(), [entry.cpuset for entry in self.book.snapshot.entries.values()]
        masks = self.fake.masks().values()
        return all(mask == pool or (not mask & pool and any(mask >= each for each in held)) for mask in masks)

    def pool(self):
        """The shared pool now."""
        return self.book.snapshot.pool

    def close(self):
        """End both."""
        self.disconnect()
        self.fake.close()


class ApartScene(Scene):
    """A scene whose driver's side is a process of its own."""

    def __init__(self, folder, **options):
        super().__init__(folder, cgroups=folder / "cgroup", **options)

    def make(self):
        """A process that has not joined the runtime."""
        folder = self.fake.path.parent
        settings = Settings(
            nri_socket=self.fake.path, cgroup_root=folder / "cgroup", log_level=logging.getLogger().level
        )
        return RemoteRuntime(settings, self.conditions, self.recorder)

    def prepare(self):
        """Start it."""
        self.driver = self.make()
        self.driver.start()
        return self

    def connect(self):
        """Start it, and have it join."""
        self.prepare()
        self.join()
        assert self.driver.wait(WAIT)
        self.fake.wait_for_plugin()
        return self

    def join(self):
        """Have it join the runtime."""
        suspect = partial(self.suspected.append, 1)
        self.driver.join(lambda: self.book.snapshot, self.book.own, self.looked_at.append, suspect)

    def answering(self):
        """Connections that answer the runtime now. Short ones that only bring changes do not count."""
        return [each for each in self.fake.plugins if each.index == INDEX and not each.end.closed.is_set()]


def eventually(true):
    """Wait for it."""
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@pytest.fixture
def scenes(tmp_path, monkeypatch):
    """Makes scenes, with the options of ``FakeRuntime``."""
    monkeypatch.setattr(session, "HOLD_UNSEEN", 0.2)
    made = []

    def make(kind=Scene, **options):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(kind(folder, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=["old events", "new events"])
def scene(request, scenes):
    """A connected scene, in both forms of events."""
    return scenes(separate=request.param == "new events").connect()
