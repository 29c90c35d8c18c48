"""What disks and kills do to the driver on a real containerd: afterwards every mask is as the ledger says."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from driver.names import cdi_file
from driver.ports import ClaimRef
from tests.driver.kubelet.kubelet import Refused
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.faulty import Faults
from tests.driver.runtime.masks import mask
from tests.driver.runtime.node import ONLINE, Node, until


def cdi_stands(node: Node, ref: ClaimRef) -> bool:
    return (node.containerd.cdi_dir / cdi_file(ref.uid)).exists()


def test_a_kill_between_any_two_steps_of_a_prepare_loses_nothing(node: Node, faults: Faults) -> None:
    neighbour = node.run(name="neighbour")
    ref, points = node.claim(), 0
    while faults.kills("prepare", ref, points + 1):
        points += 1
        node.start_driver()
        node.check(f"killed at step {points} of a prepare")
        assert cdi_stands(node, ref) == (ref.uid in node.ledger)
        if ref.uid in node.ledger:
            assert node.prepare(ref) == node.ledger[ref.uid].cpuset
            node.unprepare(ref)
    assert points >= 10
    own = node.run(ref)
    assert mask(own.cgroup) == ONLINE - mask(neighbour.cgroup)
    node.check("its container runs")


def test_a_kill_between_any_two_steps_of_an_unprepare_loses_nothing(node: Node, faults: Faults) -> None:
    neighbour = node.run(name="neighbour")
    ref, points = node.claim(), 0
    node.prepare(ref)
    while faults.kills("unprepare", ref, points + 1):
        points += 1
        node.start_driver()
        node.check(f"killed at step {points} of an unprepare")
        assert cdi_stands(node, ref) == (ref.uid in node.ledger)
        node.prepare(ref)
    assert points >= 6
    assert node.ledger == {}
    node.check("released")
    assert mask(neighbour.cgroup) == ONLINE


def test_while_an_fsync_stalls_containers_start_and_masks_hold(node: Node, faults: Faults) -> None:
    """It is the first of a prepare: the CPUs are reserved, and nobody else may be on them any more."""
    neighbour = node.run(name="neighbour")
    ref = node.claim()
    faults.order(stall_at=2, stall=10)
    preparing = threading.Thread(target=node.kubelet.prepare, args=(ref,))
    preparing.start()
    until("the fsync stalls", lambda: len(faults.steps) == 2)
    assert faults.steps[1].startswith("fsync")
    late = [node.run(name=f"late-{i}") for i in range(3)]
    until("nobody is on the reserved CPU", lambda: len(mask(neighbour.cgroup)) == len(ONLINE) - 1)
    given = ONLINE - mask(neighbour.cgroup)
    assert [mask(each.cgroup) for each in late] == [ONLINE - given] * 3
    assert preparing.is_alive()
    assert node.ledger == {}
    preparing.join()
    assert node.ledger[ref.uid].cpuset == given
    node.run(ref)
    node.check("the disk has come back")
    assert "no longer connected" not in node.log()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte in place of the folder."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=750", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use up the space."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    assert shutil.disk_usage(folder).free == 0
    return ballast


def test_a_full_disk_stops_prepare_and_not_unprepare(containerd: Containerd, short_path: Path) -> None:
    node = Node(short_path, containerd, deviceMetadata=False)  # The runtime does not see what we mount.
    with small_disk(short_path / "k/plugins/dra.cpu") as disk, node.open():
        ref = node.claim()
        cpus = node.prepare(ref)
        own, neighbour = node.run(ref), node.run(name="neighbour")
        ballast = fill(disk)
        assert node.prepare(ref) == cpus
        node.check("the disk is full")
        node.remove(own)
        node.unprepare(ref)
        assert node.ledger == {}
        assert not cdi_stands(node, ref)
        node.check("unprepared on a full disk")
        another = node.claim()
        fill(disk)
        with pytest.raises(Refused, match="No space left"):
            node.prepare(another)
        assert not cdi_stands(node, another)
        node.check("refused on a full disk")
        assert mask(neighbour.cgroup) == ONLINE
        node.end_driver()
        node.start_driver()
        ballast.unlink()
        until("prepared when there is space again", lambda: prepared(node, another), 60)
        node.run(another)
        node.check("there is space again")
        assert mask(neighbour.cgroup) == ONLINE - node.ledger[another.uid].cpuset
    print("\n".join(["full disk", *node.steps]))


def prepared(node: Node, ref: ClaimRef) -> bool:
    """Try it, as a kubelet does again and again."""
    try:
        node.prepare(ref)
    except Refused:
        return False
    return True
