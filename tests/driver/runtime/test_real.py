"""The driver on a real containerd: what the kernel says after every step, beside what the ledger says.

The machine is the one that the tests run on; with two CPUs, one can be given and one stays shared.
"""

import json
import os
import signal
import threading

import grpc
import pytest

from driver.names import CDI_KIND, cdi_file, cdi_name, variable
from driver.ports import ClaimRef
from models import format_cpuset
from tests.driver.kubelet.kubelet import Refused
from tests.driver.runtime.masks import folder, is_v1, mask, read_status
from tests.driver.runtime.node import ONLINE, Node, RefusedError, until


def test_a_pod_runs_on_its_cpus_and_its_neighbours_on_the_others(node: Node) -> None:
    neighbour = node.run(name="neighbour")
    node.check("before")
    ref = node.claim()
    cpus = node.prepare(ref)
    node.check("prepared")
    own = node.run(ref)
    assert mask(own.cgroup) == cpus
    assert mask(neighbour.cgroup) == ONLINE - cpus
    assert node.first_mask(own) == cpus
    assert f"{variable(ref.uid)}={format_cpuset(cpus)}" in node.cri.execute(own.id, "env")
    node.check("running")
    late = node.run(name="late")
    assert node.first_mask(late) == ONLINE - cpus
    node.remove(own)
    node.unprepare(ref)
    node.check("unprepared")
    assert mask(neighbour.cgroup) == ONLINE


def test_nobody_is_on_a_claims_cpus_when_its_first_process_starts(node: Node) -> None:
    neighbours = [node.run(name=f"n{i}") for i in range(6)]
    ref = node.claim()
    cpus = node.prepare(ref)
    node.run(ref)
    assert [mask(each.cgroup) for each in neighbours] == [ONLINE - cpus] * 6
    node.check("at once")


def test_containers_created_while_the_pool_changes_end_up_right(node: Node) -> None:
    refused: list[str] = []

    def create(number: int) -> None:
        try:
            node.run(name=f"c{number}")
        except RefusedError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=create, args=(i,)) for i in range(12)]
    for thread in threads[:6]:
        thread.start()
    ref = node.claim()
    node.prepare(ref)
    for thread in threads[6:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(node.containers) + len(refused) == 12
    node.check(f"created under a change, {len(refused)} refused")
    until("the claim's container may start", lambda: _started(node, ref))
    node.check("with the claim's container")


def test_containers_created_while_the_driver_is_away_are_put_right(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    node.run(ref)
    node.end_driver()
    late = node.run(name="meanwhile")
    assert mask(late.cgroup) == ONLINE
    node.start_driver()
    node.check("the driver is back")
    assert mask(late.cgroup) == ONLINE - cpus
    assert node.prepare(ref) == cpus


def test_each_part_may_be_restarted(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    node.run(ref)
    node.run(name="neighbour")
    node.end_driver(signal.SIGTERM)
    node.check("driver stopped")
    node.start_driver()
    node.check("driver started")
    node.containerd.stop()
    node.containerd.start()
    node.check("containerd restarted")
    node.containerd.kill()
    node.containerd.start()
    until("the driver has found containerd again", lambda: _started(node, None))
    node.check("containerd killed and started")
    node.api.away()
    assert node.prepare(ref) == cpus
    node.check("API server away")
    node.api.back()


def test_a_kubelet_that_updates_containers_does_not_undo_masks(node: Node) -> None:
    ref = node.claim()
    node.prepare(ref)
    for container in (node.run(ref), node.run(name="neighbour")):
        node.cri.update(container.id, cpu_shares=512)
        node.check(f"{container.name} updated without a cpuset")
        node.cri.update(container.id, cpuset_cpus=format_cpuset(ONLINE))
        node.check(f"{container.name} updated with a cpuset")


def test_a_container_that_restarts_keeps_its_cpus_without_a_new_prepare(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    first = node.run(ref)
    node.remove(first, pod=False)
    second = node.run(ref, pod=first.pod, attempt=1)
    assert node.first_mask(second) == cpus
    node.check("restarted")


def test_a_probe_that_is_executed_runs_on_the_claims_cpus(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    own = node.run(ref)
    assert read_status(node.cri.execute(own.id, "cat", "/proc/self/status")) == cpus


def test_variables_that_lie_do_not_start_a_container(node: Node) -> None:
    ref = node.claim()
    cpus = node.prepare(ref)
    stranger = node.cri.run_pod("00000000-0000-0000-0000-00000000beef")
    lies = [
        {variable(ref.uid): format_cpuset(cpus)},
        {variable("00000000-0000-0000-0000-000000000000"): "0"},
        {variable(ref.uid): "x-y"},
    ]
    for lie in lies:
        with pytest.raises(RefusedError):
            node.run(pod=stranger, env=lie)
    with pytest.raises(RefusedError):
        node.run(ref, env={variable(ref.uid): format_cpuset(ONLINE - cpus)})
    node.check("nothing has started")
    assert node.containers == {}


def test_a_second_container_of_a_claim_is_refused(node: Node) -> None:
    ref = node.claim()
    node.prepare(ref)
    first = node.run(ref)
    with pytest.raises(RefusedError):
        node.run(ref, pod=first.pod, name="second")
    node.check("one container")


def test_claims_of_the_go_driver_are_taken_over(node: Node) -> None:
    node.end_driver()
    ref, cpu = node.claim(), max(ONLINE)
    device = {"name": cdi_name(ref.uid), "containerEdits": {"env": [f"{variable(ref.uid)}={cpu}"]}}
    file = node.containerd.cdi_dir / cdi_file(ref.uid)
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": CDI_KIND, "devices": [device]}))
    own = node.run(ref)
    node.start_driver()
    assert node.ledger[ref.uid].cpuset == {cpu}
    node.run(name="neighbour")
    until("the running container is pinned", lambda: not node.wrong())
    node.check("taken over")
    assert node.prepare(ref) == {cpu}
    node.remove(own)
    node.unprepare(ref)
    assert not file.exists()
    node.check("released")


def test_a_solver_that_hangs_or_dies_holds_up_nobody(node: Node) -> None:
    first = until("the solver's process", lambda: "is ready" in node.log() and node.worker())
    os.kill(first, signal.SIGSTOP)
    ref = node.claim()
    node.prepare(ref)
    until("greedy has stood in", lambda: "greedy stands in for CP-SAT" in node.log())
    own = node.run(ref)
    node.check("the solver's process has stopped")
    second = until("another process", lambda: (found := node.worker()) != first and found, 60)
    os.kill(second, signal.SIGKILL)
    node.remove(own)
    node.unprepare(ref)
    again = node.claim()
    node.prepare(again)
    node.run(again)
    node.check("the solver's process was killed")


def test_a_process_that_answers_the_runtime_and_hangs_or_dies_is_replaced(node: Node) -> None:
    """What starts while nobody answers has all CPUs; it is put right when the next process is connected."""
    ref = node.claim()
    node.prepare(ref)
    own = node.run(ref)
    node.check("a claim")
    for how in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
        former = node.answering()
        assert former is not None
        os.kill(former, how)
        neighbour = node.run(name=f"neighbour-{former}")
        until("another process", lambda former=former: node.answering() not in (None, former))
        until("all masks are right", lambda: not node.wrong())
        node.check("put right")
        node.remove(neighbour)
    node.remove(own)
    node.unprepare(ref)
    again = node.claim()
    os.kill(node.answering() or 0, signal.SIGKILL)
    node.prepare(again)
    node.run(again)
    node.check("prepared just after the end of the process")


def _started(node: Node, ref: ClaimRef | None) -> bool:
    """Try it, as a kubelet does again and again."""
    try:
        container = node.run(ref, name="tried")
    except (RefusedError, grpc.RpcError):
        return False
    if ref is None:
        node.remove(container)
    return True


def test_a_container_keeps_what_the_kubelets_static_manager_has_given_it_when_the_driver_comes(node: Node) -> None:
    node.end_driver()
    given, others = max(ONLINE), ONLINE - {max(ONLINE)}
    own, neighbour = node.run(name="dpdk"), node.run(name="web")
    node.cri.update(own.id, cpuset_cpus=str(given))
    manager = node.kubelet.cpu_manager.start("static", format_cpuset(ONLINE))
    manager.give(own.pod.uid, "dpdk", str(given))
    node.start_driver()
    until("the neighbour leaves", lambda: mask(neighbour.cgroup) == others)
    assert node.first_mask(node.run(name="late")) == others
    assert mask(own.cgroup) == {given}
    with pytest.raises(Refused, match=f"StaticCPUManager.*CPUs {given} to container dpdk"):
        node.prepare(node.claim())
    node.remove(own)
    manager.start("none")
    until("all is ours", lambda: mask(neighbour.cgroup) == ONLINE)


@pytest.mark.skipif(not is_v1(), reason="with cgroup v2 a smaller mask reaches all cgroups below")
def test_a_container_whose_own_cpusets_keep_its_mask_wide_keeps_claims_waiting(node: Node) -> None:
    neighbour = node.run(name="systemd")
    inner = folder(neighbour.cgroup) / "inner"
    inner.mkdir()
    for name in ("cpuset.mems", "cpuset.cpus"):
        (inner / name).write_text((inner.parent / name).read_text())
    ref = node.claim()
    cpus, pod = node.prepare(ref), node.cri.run_pod(ref.uid)
    with pytest.raises(RefusedError, match=r"'systemd' of pod .* may still run on its CPUs"):
        node.run(ref, pod=pod)
    inner.rmdir()
    until("the neighbour leaves", lambda: mask(neighbour.cgroup) == ONLINE - cpus)
    assert node.first_mask(node.run(ref, pod=pod, attempt=1)) == cpus
    node.check("its cpusets are gone")
