"""The driver with a real containerd on a machine with cgroup v2 and two NUMA nodes, which is emulated.

What runs in it are the tests of ``tests/driver/runtime`` that need such a machine. With ``-s`` they show the masks
as that machine's kernel says them.
"""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.machine import machine
from tests.driver.machine.initramfs import TEMPORARY
from tests.driver.machine.packages import Emulator, fetch
from tests.driver.runtime import packages
from tests.driver.runtime.archive import UnavailableError
from tests.driver.runtime.enclosure import commands

WANTED = "CPUSAT_VM"
"""The variable that says that a machine is to be emulated: for ``TESTS``, or for ``all``."""

RELEASE = "2.1"
RUNTIME = "tests/driver/runtime"
TESTS = (f"{RUNTIME}/test_cgroups.py", f"{RUNTIME}/test_numa.py")
MORE = (f"{RUNTIME}/test_containerd.py", f"{RUNTIME}/test_real.py")
"""What can run on other machines too, and takes a quarter of an hour in this one."""

FLAGS = ("-p", "no:cacheprovider", "--color=no", "-s", "-rA", "--tb=short")
PATIENCE = 1800.0


def why_not() -> str:
    """Why no machine is to be emulated here; nothing where one is."""
    if not os.environ.get(WANTED):
        return f"to emulate a machine takes 3 to 5 minutes; set {WANTED}=1 for it"
    if platform.machine() != "x86_64":
        return f"the machine runs the host's programs, which are for {platform.machine()}, not for x86_64"
    if os.geteuid():
        return "the machine sees the host's files, which only root can read"
    if missing := [name for name in ("unshare", "nsenter") if shutil.which(name) is None]:
        return f"there is no {missing[0]} here"
    return ""


@pytest.fixture
def emulator() -> Emulator:
    if reason := why_not():
        pytest.skip(reason)
    try:
        packages.fetch(RELEASE)
        return fetch()
    except UnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no emulator or no containerd can be had: {error}")


def test_the_driver_on_two_numa_nodes_with_cgroup_v2(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    others = " and ".join(f"not {release}" for release in packages.SUITES if release != RELEASE)
    tests = (*TESTS, *MORE) if os.environ.get(WANTED) == "all" else TESTS
    command = [sys.executable, "-m", "pytest", *FLAGS, "-k", others, *tests]
    said = machine.run(emulator, command, dict(environment()), tmp_path, PATIENCE)
    print(said)
    outcomes = re.findall(r"^([A-Z]+) (?:\[\d+\] )?(tests/\S+?):", said, re.MULTILINE)
    assert {outcome for outcome, _ in outcomes} == {"PASSED"}
    assert {file for _, file in outcomes} == set(tests)
    assert said.endswith("\nexit 0\n")


def test_a_machine_that_comes_to_no_end_is_switched_off(emulator: Emulator, tmp_path: Path) -> None:
    with pytest.raises(machine.MachineError):
        machine.run(emulator, ["sleep", "1000"], {}, tmp_path, patience=3.0)
    assert not [line for line in commands() if str(tmp_path) in line]


def environment() -> Iterator[tuple[str, str]]:
    """Of the tests in the machine. A plugin of pytest's that they do without takes seconds to load."""
    yield from {"CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": TEMPORARY}.items()
    yield from ((name, os.environ[name]) for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ)
