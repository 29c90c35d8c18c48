"""A claim over several NUMA nodes, and memory that is bound to them: what the kernel says, beside the ledger.

Where the machine has one node they are skipped; ``tests/driver/machine`` runs them on one that has more.
"""

import signal
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from driver.nri.kernel import Kernel
from models import format_cpuset, parse_cpuset
from tests.driver.runtime import masks
from tests.driver.runtime.masks import MEMS, MOUNT, mask, memory_nodes, read_status
from tests.driver.runtime.node import ONLINE, Node, Running, until
from topologies.readers.sysfs import read_sysfs

LISTS = {
    int(file.parent.name.removeprefix("node")): parse_cpuset(file.read_text())
    for file in Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")
}
NODES = {node: cpus for node, cpus in sorted(LISTS.items()) if cpus}
"""CPUs of each NUMA node that has any."""

WITH_MEMORY = parse_cpuset(Path("/sys/devices/system/node/has_memory").read_text()) if NODES else frozenset()

pytestmark = [
    pytest.mark.skipif(len(NODES) < 2, reason="this machine has one NUMA node (tests/driver/machine has more)"),
    pytest.mark.skipif(
        any(len(cpus) < 4 for cpus in NODES.values()), reason="a NUMA node has fewer than 4 CPUs to give and share"
    ),
]


@pytest.fixture
def settings() -> dict[str, Any]:
    """So much time that the solver answers on a machine that is emulated, too."""
    return {"solverTimeLimit": 20.0}


def test_the_driver_sees_the_machine_that_the_kernel_shows() -> None:
    cpus = read_sysfs(Path("/sys")).cpus
    assert {node: {each.cpu for each in cpus if each.numa == node} for node in NODES} == NODES
    for said, seen in (("thread_siblings_list", attrgetter("core")), ("core_siblings_list", attrgetter("socket"))):
        lists = (Path(f"/sys/devices/system/cpu/cpu{each}/topology/{said}").read_text() for each in ONLINE)
        groups = {seen(each): {other.cpu for other in cpus if seen(other) == seen(each)} for each in cpus}
        assert set(map(parse_cpuset, lists)) == set(map(frozenset, groups.values()))


def test_a_distributed_claim_has_equal_shares_of_all_nodes_and_of_their_memory(node: Node) -> None:
    until("the solver's process", lambda: "is ready" in node.log(), 120)
    neighbour = node.run(name="neighbour")
    ref = node.claim(2 * len(NODES), allocationPolicy="distributed", numaMin="all", memory="bind")
    cpus = node.prepare(ref)
    assert [len(cpus & each) for each in NODES.values()] == [2] * len(NODES)
    own = node.run(ref)
    assert (mask(own.cgroup), node.first_mask(own)) == (cpus, cpus)
    assert memory_nodes(own.cgroup) == node.ledger[ref.uid].mems == NODES.keys()
    assert (mask(neighbour.cgroup), memory_nodes(neighbour.cgroup)) == (ONLINE - cpus, WITH_MEMORY)
    check(node, f"distributed by {node.ledger[ref.uid].engine}")
    node.end_driver(signal.SIGTERM)
    check(node, "the driver is away")
    node.start_driver()
    assert node.prepare(ref) == cpus
    check(node, "the driver is back")
    node.remove(own)
    node.unprepare(ref)
    check(node, "unprepared")
    assert mask(neighbour.cgroup) == ONLINE


def test_a_packed_claim_has_cpus_and_memory_of_one_node(node: Node) -> None:
    free = node.claim(2, allocationPolicy="packed")
    bound = node.claim(2, allocationPolicy="packed", memory="bind")
    for ref in (free, bound):
        (home,) = (number for number, cpus in NODES.items() if node.prepare(ref) <= cpus)
        own = node.run(ref)
        assert node.ledger[ref.uid].mems == ({home} if ref == bound else set())
        assert memory_nodes(own.cgroup) == ({home} if ref == bound else WITH_MEMORY)
        said = node.cri.execute(own.id, "cat", "/proc/self/status")
        assert (read_status(said), read_status(said, MEMS)) == (mask(own.cgroup), memory_nodes(own.cgroup))
    node.cri.update(own.id, cpuset_mems=format_cpuset(WITH_MEMORY))
    assert memory_nodes(own.cgroup) == {home}
    check(node, "a kubelet would have its memory on all nodes")


def check(node: Node, what: str) -> None:
    """The invariant of every step; and that the driver reads the kernel's files as they are meant."""
    node.check(what)
    for each in node.containers.values():
        assert Kernel(MOUNT)(each.cgroup) == mask(each.cgroup)
        node.steps.append(f"    {each.name}: {said_of(each)}")


def said_of(container: Running) -> str:
    """What the kernel says of a container, in its own words."""
    folder, thread = masks.folder(container.cgroup), masks.threads(container.cgroup)[0]
    files = [f"{file.name}={file.read_text().strip()}" for file in sorted(folder.glob("cpuset.*s"))]
    status = Path(f"/proc/{thread}/status").read_text().splitlines()
    lines = [line.replace("\t", " ") for line in status if "_allowed_list" in line]
    return "  ".join([*files, *lines])
