"""How the driver reads real cgroups, of whichever version this machine has: made by hand, without a runtime."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.nri.kernel import Kernel
from models import format_cpuset, from_mask
from tests.driver.runtime.masks import MOUNT, folder, is_v1, mask, remove_cgroups, why_no_cpusets
from tests.driver.runtime.node import ONLINE

FIRST, LAST = min(ONLINE), max(ONLINE)

WHY_NOT = why_no_cpusets()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

only_v2 = pytest.mark.skipif(is_v1(), reason="this machine has cgroup v1, which refuses such a mask")


@pytest.fixture
def parent() -> Iterator[str]:
    """A cgroup below which others with CPUs of their own can be."""
    name = f"cpusat-kernel-{os.getpid()}"
    make(name, ONLINE)
    yield name
    remove_cgroups(name)


def make(cgroup: str, cpus: frozenset[int] = frozenset()) -> None:
    """A cgroup, with a mask unless it takes its parent's."""
    path = folder(cgroup)
    path.mkdir()
    if is_v1():
        (path / "cpuset.mems").write_text((path.parent / "cpuset.mems").read_text())
    else:
        (path.parent / "cgroup.subtree_control").write_text("+cpuset")
    if cpus:
        set_mask(cgroup, cpus)


def set_mask(cgroup: str, cpus: frozenset[int]) -> None:
    (folder(cgroup) / "cpuset.cpus").write_text(format_cpuset(cpus))


@contextmanager
def process_in(cgroup: str) -> Iterator[None]:
    """A process of its own; ``mask`` sees to it that it may run where the cgroup says."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            (folder(cgroup) / "cgroup.procs").write_text(str(process.pid))
            yield
        finally:
            process.kill()


def test_a_mask_that_was_set_is_read(parent: str) -> None:
    make(own := f"{parent}/own", frozenset({LAST}))
    with process_in(own):
        assert from_mask(Kernel(MOUNT)(f"/{own}") or 0) == mask(own) == {LAST}


def test_of_a_cgroup_that_is_gone_nothing_is_read(parent: str) -> None:
    make(own := f"{parent}/own", frozenset({LAST}))
    folder(own).rmdir()
    assert Kernel(MOUNT)(own) is None


@only_v2
def test_where_nothing_was_set_the_parents_mask_holds(parent: str) -> None:
    set_mask(parent, frozenset({FIRST}))
    make(own := f"{parent}/own")
    with process_in(own):
        assert from_mask(Kernel(MOUNT)(own) or 0) == mask(own) == {FIRST}


@only_v2
def test_a_mask_that_the_parent_does_not_have_does_not_hold(parent: str) -> None:
    set_mask(parent, frozenset({FIRST}))
    make(own := f"{parent}/own", frozenset({LAST}))
    with process_in(own):
        assert (folder(own) / "cpuset.cpus").read_text().strip() == str(LAST)
        assert from_mask(Kernel(MOUNT)(own) or 0) == mask(own) == {FIRST}


@only_v2
def test_where_the_parent_gives_no_cpus_of_its_own_its_mask_holds(parent: str) -> None:
    """The files are there only where the parent passes the controller on."""
    set_mask(parent, frozenset({FIRST}))
    own = f"{parent}/own"
    folder(own).mkdir()
    assert not list(Path(folder(own)).glob("cpuset.*"))
    assert from_mask(Kernel(MOUNT)(own) or 0) == {FIRST}
