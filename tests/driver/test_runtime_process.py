"""The whole driver, and what becomes of the process of its that answers the container runtime."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driver import prepare
from driver.conditions import Condition
from driver.nri import link, remote
from driver.nri.remote import RemoteRuntime
from driver.nri.session import INDEX
from tests.driver.cluster.waiting import until
from tests.driver.kubelet.kubelet import Refused
from tests.driver.nri.fake_runtime import NotCreated
from tests.driver.test_serve import MACHINE, page
from tests.driver.world import World


@pytest.fixture
def world(short_path: Path) -> Iterator[World]:
    with World(short_path, MACHINE, solverTimeLimit=0, reservedCPUs="0-1").running() as running:
        yield running


@pytest.fixture
def stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The process, which is stopped, and is taken for nothing worse."""
    monkeypatch.setattr(link, "HUNG", 600.0)
    pid = process_of(world).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    yield pid
    if process_of(world).pid == pid:
        os.kill(pid, signal.SIGCONT)


def process_of(world: World) -> RemoteRuntime:
    assert world.driver is not None
    assert world.driver._remote is not None
    return world.driver._remote


def conditions_of(world: World) -> dict[Condition, str]:
    assert world.driver is not None
    return world.driver.conditions.current()


def test_a_claim_that_the_process_does_not_know_is_refused_and_the_next_try_is_answered(
    world: World, stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "KNOWING", 0.3)
    ref = world.claim(4)
    with pytest.raises(Refused, match="RuntimeAway"):
        world.prepare(ref)
    cpus = world.held(ref)
    with pytest.raises(Refused, match="RuntimeAway"):
        world.prepare(ref)
    os.kill(stopped, signal.SIGCONT)
    until(lambda: process_of(world).knows(1.0))
    assert world.prepare(ref) == cpus
    assert world.run(ref).kernel == cpus


def test_cpus_that_come_free_are_another_claims_only_after_the_process_knows_both(
    world: World, stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "KNOWING", 0.3)
    os.kill(stopped, signal.SIGCONT)
    first = world.claim(30)
    world.prepare(first)
    os.kill(stopped, signal.SIGSTOP)
    assert world.kubelet.unprepare(first) == {first.uid: ""}
    second = world.claim(30)
    with pytest.raises(Refused, match="RuntimeAway"):
        world.prepare(second)
    os.kill(stopped, signal.SIGCONT)
    until(lambda: process_of(world).knows(1.0))
    with pytest.raises(NotCreated, match="not prepared"):
        world.runtime.create(f"pod-{first.uid}", "main", {f"DRA_CPUSET_{first.uid}": "2-31"})
    assert world.run(second).kernel == world.prepare(second)


def test_a_prepare_that_comes_just_after_the_end_of_the_process_waits_for_the_next_one(short_path: Path) -> None:
    """A refusal would cost the pod a minute."""
    with World(short_path, MACHINE, longest=30.0, solverTimeLimit=0).running() as world:
        pid = process_of(world).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: process_of(world).pid != pid)
        ref = world.claim(4)
        cpus = world.prepare(ref)
        assert world.run(ref).kernel == cpus


def test_claims_that_are_prepared_while_processes_end_are_answered_or_kept(world: World) -> None:
    claims, going = [world.claim(1) for _ in range(24)], threading.Event()

    def kill() -> None:
        while not going.wait(0.3):
            if (pid := process_of(world).pid) is not None:
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda ref: world.kubelet.prepare(ref)[ref.uid], claims))
    going.set()
    killer.join()
    assert {each.error.partition(":")[0] for each in replies} <= {"", "Degraded", "RuntimeAway"}
    until(lambda: process_of(world).wait(0.1) and not conditions_of(world))
    for ref in claims:
        cpus = world.prepare(ref)
        assert world.run(ref).kernel == cpus
    assert process_of(world).settle(20)
    masks = list(world.runtime.masks().values())
    assert sum(map(len, masks)) == len(frozenset().union(*masks)) == 24


def test_a_process_that_hangs_is_replaced_before_the_driver_is_taken_for_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "HUNG", 0.5)
    pid = process_of(world).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    until(lambda: process_of(world).pid not in (None, pid) and process_of(world).wait(0))
    assert page(world, "/healthz") == (200, "ok\n")


def test_a_driver_whose_process_cannot_be_replaced_is_not_alive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROGRAM", "driver.nri.there_is_none")
    monkeypatch.setattr(remote, "SILENCE", 2.0)
    pid = process_of(world).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: page(world, "/healthz") == (503, "ended: nri\n"))
    until(lambda: page(world, "/readyz")[0] == 503)


def test_a_driver_that_waits_for_the_nodes_lock_has_its_process_ready_and_away_from_the_runtime(
    world: World,
) -> None:
    second = world.make_driver()
    waiting = threading.Thread(target=second.start)
    waiting.start()
    try:
        assert second._remote is not None
        until(lambda: second._remote._link is not None and second._remote._link._open)  # type: ignore[union-attr]
        assert not second._remote.wait(0.5)
        assert [each.index for each in world.runtime.plugins].count(INDEX) == 1
    finally:
        second.stopped.set()
        waiting.join()
        second.stop()
