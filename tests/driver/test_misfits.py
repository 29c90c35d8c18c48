"""What a configuration asks for that a machine does not have."""

from pathlib import Path

import pytest

from driver.config import Config
from driver.host import Host
from driver.misfits import misfits
from driver.serve import Driver
from tests.driver.world import World
from topologies import synthetic

MACHINE = synthetic.build("numa:3 core:2 cpu:1")
THREADED = synthetic.build("numa:2 core:1 cpu:2")

UNMET = "claims without options of their own get no CPUs here: "


def found(machine=MACHINE, **settings: object) -> list[tuple[str, str]]:
    config = Config.model_validate(settings)
    host = Host.of(config, machine)
    return [(each.place, each.reason) for each in misfits(config, host.topology, host.cpus)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reservedCPUs": "0-4"},
        {"minSharedCPUs": 5},
        {"fullCores": True},
        {"numaIds": "0-2", "numaMin": 3, "strict": True},
        {"coreType": "any"},
        {"cpuDeviceMode": "individual"},
    ],
)
def test_a_configuration_that_the_machine_can_meet_is_left_alone(settings: dict[str, object]) -> None:
    assert found(**settings) == []


@pytest.mark.parametrize(
    ("settings", "place", "reason"),
    [
        ({"reservedCPUs": "0,6-7"}, "reservedCPUs", "CPUs 6-7 are not online; this machine has 0-5"),
        ({"reservedCPUs": "0-5"}, "reservedCPUs", "0-5 are all CPUs there are; leave some to give"),
        ({"reservedCPUs": "0-5", "numaIds": 7}, "reservedCPUs", "0-5 are all CPUs there are; leave some to give"),
        ({"minSharedCPUs": 6}, "minSharedCPUs", "no CPUs are published, for 6 must stay shared; ask for fewer"),
        ({"numaIds": 7}, "numaIds", f"{UNMET}1 CPU in NUMA node 7 requested"),
        (
            {"near": "eth9"},
            "near",
            f"{UNMET}near: 'eth9' is neither a device of this machine (none) nor a CPU list",
        ),
        ({"coreType": "efficiency"}, "coreType", f"{UNMET}1 CPU in efficiency cores requested"),
        ({"numaIds": 0, "coreType": "efficiency"}, "numaIds, coreType", f"{UNMET}1 CPU in"),
    ],
)
def test_what_the_machine_does_not_have_is_named_with_its_key(
    settings: dict[str, object], place: str, reason: str
) -> None:
    ((key, text),) = found(**settings)
    assert key == place
    assert text.startswith(reason)


def test_whole_cores_that_there_are_none_of_are_named() -> None:
    ((key, text),) = found(THREADED, fullCores=True, reservedCPUs="0-1")
    assert (key, text.partition(",")[0]) == ("fullCores", "no CPUs are published")


def test_all_that_does_not_fit_is_told() -> None:
    assert [key for key, _ in found(reservedCPUs="0,9", minSharedCPUs=5, numaIds=7)] == [
        "reservedCPUs",
        "minSharedCPUs",
        "numaIds",
    ]


def test_the_driver_logs_it_when_it_starts(short_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(short_path, MACHINE, solverTimeLimit=0, numaIds=7)
    Driver(world.config(), world.root, world.runtime.kernel)
    assert f"numaIds: {UNMET}1 CPU in NUMA node 7 requested" in caplog.text
