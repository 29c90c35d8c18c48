"""The runtime that the other tests run on, without the driver."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from driver.names import CDI_KIND, cdi_file, cdi_id, cdi_name, variable
from tests.driver.runtime import masks
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.cri import READ_FIRST_MASK, RUNNING, Spec
from tests.driver.runtime.enclosure import commands
from tests.driver.runtime.node import ONLINE, until

UID = "11111111-2222-3333-4444-555555555555"
LAST = max(ONLINE)


@pytest.fixture
def container(containerd: Containerd) -> Iterator[str]:
    """A container whose pod is told of one CDI device."""
    device = {"name": cdi_name(UID), "containerEdits": {"env": [f"{variable(UID)}={LAST}"]}}
    file = containerd.cdi_dir / cdi_file(UID)
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": CDI_KIND, "devices": [device]}))
    pod = containerd.cri.run_pod(UID)
    container = containerd.cri.create(pod, Spec(cdi=[cdi_id(UID)]))
    containerd.cri.start(container)
    yield container
    containerd.cri.remove_pod(pod.sandbox)
    file.unlink()


def test_a_container_sees_the_variable_of_its_cdi_device(containerd: Containerd, container: str) -> None:
    assert f"{variable(UID)}={LAST}" in containerd.cri.execute(container, "env").splitlines()


def test_the_kernel_shows_the_mask_that_the_runtime_is_told(containerd: Containerd, container: str) -> None:
    cgroup = containerd.cri.cgroup_of(container)
    until("its two processes run", lambda: len(masks.threads(cgroup)) == 2)
    assert masks.mask(cgroup) == ONLINE
    containerd.cri.update(container, cpuset_cpus=str(LAST))
    assert masks.mask(cgroup) == {LAST}
    assert masks.read_status(containerd.cri.execute(container, "cat", "/proc/self/status")) == {LAST}
    assert masks.read_status(containerd.cri.execute(container, *READ_FIRST_MASK)) == ONLINE


def test_a_process_that_has_left_the_mask_of_its_cgroup_is_found(containerd: Containerd, container: str) -> None:
    cgroup = containerd.cri.cgroup_of(container)
    thread = until("its two processes run", lambda: masks.threads(cgroup)[1:])[0]
    os.sched_setaffinity(thread, {LAST})
    with pytest.raises(masks.MixedError, match=f"thread {thread} may run on {LAST}"):
        masks.mask(cgroup)


def test_containers_outlive_the_runtime(containerd: Containerd, container: str) -> None:
    for end in (containerd.stop, containerd.kill):
        end()
        with pytest.raises(grpc.RpcError):
            containerd.cri.version()
        containerd.start()
        assert containerd.cri.state(container) == RUNNING


def test_nothing_is_left_behind(containerd: Containerd) -> None:
    with Containerd(containerd.binaries) as other:
        pod = other.cri.run_pod(UID)
        other.cri.start(other.cri.create(pod, Spec()))
        folder, cgroup = str(other.folder), masks.folder(other.cgroup)
        assert cgroup.is_dir()
        other.kill()
    assert not cgroup.exists()
    assert not Path(folder).exists()
    assert folder not in Path("/proc/self/mountinfo").read_text()
    assert not [line for line in commands() if folder in line]
