"""The driver starts with other devices than before, while claims live."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.driver.cluster.waiting import until
from tests.driver.kubelet.kubelet import Refused
from tests.driver.world import World
from topologies import synthetic

MACHINE = synthetic.build("socket:2 numa:2 l3:1 core:4 cpu:2")
"""32 CPUs on 4 NUMA nodes."""


def capacities(world: World) -> dict[str, int]:
    """As the API server has them."""
    devices = [device for each in world.api.slices() for device in each["spec"]["devices"]]
    return {each["name"]: int(each["capacity"]["dra.cpu/cpu"]["value"]) for each in devices}


def restart(world: World, **settings: Any) -> None:
    world.go_down()
    world.settings.update(settings)
    world.come_up()


def test_cpus_of_claims_on_devices_of_another_grouping_are_not_promised_again(short_path: Path) -> None:
    world = World(short_path, MACHINE, solverTimeLimit=0, reservedCPUs="0-1")
    with world.running():
        until(lambda: capacities(world) == {"cpudevmachine": 30})
        old = world.claim(12, allocationPolicy="packed")
        cpus = world.prepare(old)
        restart(world, groupBy="numanode")
        numa = {cpu.cpu: f"cpudevnuma{cpu.numa:03d}" for cpu in MACHINE.cpus}
        free = [numa[cpu] for cpu in MACHINE.online - cpus - {0, 1}]
        wanted = {name: free.count(name) for name in sorted(set(free))}
        until(lambda: capacities(world) == wanted)
        name = max(wanted, key=wanted.__getitem__)
        new = [world.claim(2, device=name) for _ in range(wanted[name] // 2)]
        for ref in new:
            world.prepare(ref)
        with pytest.raises(Refused, match="NotPlaceable"):
            world.prepare(world.claim(2, device=name))
        assert capacities(world) == wanted, "ordinary claims are the scheduler's to count"
        assert {each["spec"]["pool"]["generation"] for each in world.api.slices()} == {2}
        assert {"cpudevmachine", *wanted} == set(health(world))
        world.kubelet.unprepare(old)
        until(lambda: sum(capacities(world).values()) == 30)
        assert "cpudevmachine" not in health(world)


def health(world: World) -> list[str]:
    """Devices that the kubelet hears of."""
    with closing(world.kubelet.watch_health()) as messages:
        return [device for _, device in next(messages)]


def test_what_the_kubelet_gives_away_is_withdrawn_and_devices_of_live_claims_stay(short_path: Path) -> None:
    world = World(short_path, MACHINE, solverTimeLimit=0, groupBy="numanode")
    with world.running():
        ref = world.claim(4, device="cpudevnuma001")
        world.prepare(ref)
        until(lambda: len(capacities(world)) == 4)
        before = capacities(world)
        manager = world.kubelet.cpu_manager.start("static", "0-31")
        manager.give("late", "main", "0-1")
        assert world.driver is not None
        world.driver.foreign.wake()
        until(lambda: capacities(world) == {"cpudevnuma001": 4})
        manager.start("none")
        world.driver.foreign.wake()
        until(lambda: capacities(world) == before)
