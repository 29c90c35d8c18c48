"""Pods that cannot start at once, with a kubelet that tries again only after a minute or more."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.ports import ClaimRef
from tests.driver.cluster.waiting import until
from tests.driver.kubelet.pods import LATEST, SOONEST, Pod, Pods
from tests.driver.test_serve import MACHINE
from tests.driver.world import World


@pytest.fixture
def world(short_path: Path) -> Iterator[World]:
    made = World(short_path, MACHINE, apart=False, longest=30.0, solverTimeLimit=0, reservedCPUs="0-1")
    with made.running() as running:
        yield running


@pytest.fixture
def pods(world: World) -> Pods:
    return Pods(world.kubelet)


class Coming:
    """A pod whose start takes a while."""

    def __init__(self, pods: Pods, ref: ClaimRef) -> None:
        self.pod: Pod | None = None
        self._thread = threading.Thread(target=lambda: setattr(self, "pod", pods.come(ref)))
        self._thread.start()

    def ready(self) -> Pod:
        self._thread.join(60)
        assert self.pod is not None
        return self.pod


def notes(world: World) -> list[str]:
    return [event["message"] for event in world.api.events() if event["reason"] == "Note"]


def test_a_pod_that_follows_a_deleted_one_starts_at_the_first_try(world: World, pods: Pods) -> None:
    old, new = world.claim(20), world.claim(20)
    leaving = pods.come(old)
    container = world.run(old)
    world.api.delete_claim(old.namespace, old.name)
    coming = Coming(pods, new)
    until(
        lambda: any("waits up to 30 s for CPUs of claims that are about to leave" in each for each in notes(world))
    )
    world.runtime.remove(container.id)
    pods.go(leaving)
    assert (coming.ready().error, coming.ready().tries) == ("", 1)
    assert world.run(new).kernel == world.held(new)


def test_a_pod_that_comes_while_the_api_server_is_away_starts_at_the_first_try(world: World, pods: Pods) -> None:
    ref = world.claim(4)
    world.api.away()
    coming = Coming(pods, ref)
    desk = world.driver._desk  # type: ignore[union-attr]
    until(lambda: desk._waiting or desk._under_way)
    world.api.back()
    assert (coming.ready().error, coming.ready().tries) == ("", 1)


def test_a_pod_that_was_refused_starts_after_a_minute_or_when_it_changes(world: World, pods: Pods) -> None:
    first = pods.come(world.claim(20))
    second, third = pods.come(world.claim(15)), pods.come(world.claim(15))
    assert "NotPlaceable" in second.error
    assert "NotPlaceable" in third.error
    pods.go(first)
    pods.turn(SOONEST - 1)
    assert (second.prepared, third.prepared) == (False, False), "nobody tells the kubelet that CPUs have come free"
    pods.change(third)
    assert third.prepared
    pods.turn(LATEST - SOONEST + 1)
    assert second.prepared
    assert (second.tries, third.tries) == (2, 2)
