"""The driver comes to a node on which the kubelet's static CPU manager has given CPUs to containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models import parse_cpuset
from tests.driver.cluster.waiting import until
from tests.driver.kubelet.kubelet import Refused
from tests.driver.test_serve import page
from tests.driver.world import World
from topologies import synthetic

MACHINE = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""32 CPUs on 4 NUMA nodes."""

SOURCES = {"both": (True, True), "the API": (True, False), "the checkpoint": (False, True)}


@pytest.fixture
def before(short_path: Path) -> Iterator[World]:
    """The node before the driver comes."""
    world = World(short_path, MACHINE, solverTimeLimit=0, reservedCPUs="0-1")
    manager = world.kubelet.cpu_manager.start("static", "0-31")
    for pod in ("dpdk", "web"):
        world.runtime.create(pod, "main")
    manager.give("dpdk", "main", "2-3")
    yield world
    manager.close()


def masks(world: World) -> dict[str, frozenset[int]]:
    """By pod."""
    found = world.runtime.masks()
    return {each.pod_uid: found[name] for name, each in world.runtime.containers.items() if name in found}


def set_up(world: World, source: str) -> None:
    """What the static manager has told the runtime, and what of it can be known."""
    api, checkpoint = SOURCES[source]
    dpdk, web = world.runtime.containers.values()
    world.runtime.update_resources(dpdk.id, "2-3")
    world.runtime.update_resources(web.id, "0-1,4-31")
    if api:
        world.kubelet.cpu_manager.serve()
    if not checkpoint:
        world.kubelet.cpu_manager.checkpoint.unlink()


@pytest.mark.parametrize("source", SOURCES)
def test_pods_keep_their_exclusive_cpus_when_the_driver_comes(before: World, source: str) -> None:
    set_up(before, source)
    with before.running() as world:
        until(lambda: masks(world)["web"] == parse_cpuset("4-31"))
        assert masks(world)["dpdk"] == {2, 3}
        dpdk = next(each for each in world.runtime.containers.values() if each.pod_uid == "dpdk")
        assert dpdk.updates == ["2-3"], "nobody but the kubelet has updated it"
        assert world.driver is not None
        assert world.driver.ledger.snapshot.free == parse_cpuset("4-31")
        with pytest.raises(Refused, match="Degraded: nothing new is prepared on this node: StaticCPUManager"):
            world.prepare(world.claim(4))
        status, said = page(world, "/readyz")
        assert status == 503
        assert "StaticCPUManager: the kubelet's CPU manager has given CPUs 2-3 to container main of pod" in said
        assert page(world, "/healthz") == (200, "ok\n")


def test_once_the_kubelet_has_been_put_right_all_cpus_are_ours(before: World) -> None:
    set_up(before, "both")
    with before.running() as world:
        world.runtime.remove_pod("dpdk")
        world.kubelet.cpu_manager.start("none")
        assert world.driver is not None
        world.driver.foreign.wake()
        until(lambda: masks(world)["web"] == parse_cpuset("2-31"))
        until(lambda: page(world, "/readyz") == (200, "ok\n"))
        assert len(world.prepare(world.claim(30))) == 30


def test_claims_keep_their_cpus_from_a_static_manager_that_comes_later(short_path: Path) -> None:
    world = World(short_path, MACHINE, solverTimeLimit=0, reservedCPUs="0-1")
    manager = world.kubelet.cpu_manager
    with world.running():
        ref = world.claim(4)
        cpus = world.prepare(ref)
        own = world.run(ref)
        manager.start("static", "0-31")
        mine, others = sorted(cpus)[0], 31
        manager.give("late", "main", f"{mine},{others}")
        late = world.runtime.create("late", "main", cpus=f"{mine},{others}")
        world.runtime.update_resources(own.id, manager.default)
        until(lambda: masks(world)["late"] == {others})
        assert late.kernel is not None
        assert masks(world)[f"pod-{ref.uid}"] == cpus
        assert world.driver is not None
        until(lambda: "are held by claim default/c-" in str(world.driver.conditions))
        world.kubelet.prepare(ref)[ref.uid].require()
        with pytest.raises(Refused, match="Degraded"):
            world.prepare(world.claim(1))
        assert masks(world)[f"pod-{ref.uid}"] == cpus


def test_a_kubelet_that_cannot_be_asked_is_a_condition_and_nothing_is_moved(before: World) -> None:
    set_up(before, "the checkpoint")
    before.kubelet.cpu_manager.checkpoint.rename(before.folder / "elsewhere")
    with before.running() as world:
        status, said = page(world, "/readyz")
        assert status == 503
        assert "ExclusiveCPUsUnknown: neither the kubelet's pod-resources API" in said
        with pytest.raises(Refused, match=r"Degraded.*ExclusiveCPUsUnknown"):
            world.prepare(world.claim(4))
        assert masks(world) == {"dpdk": {2, 3}, "web": parse_cpuset("0-1,4-31")}
        (world.folder / "elsewhere").rename(world.kubelet.cpu_manager.checkpoint)
        assert world.driver is not None
        world.driver.foreign.wake()
        until(lambda: masks(world) == {"dpdk": {2, 3}, "web": parse_cpuset("4-31")})
        assert "ExclusiveCPUsUnknown" not in world.driver.conditions.current()
