import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver import placing, prepare
from driver.errors import RefusedError
from driver.ledger.entry import Entry, Grant, Owner
from driver.ports import ClaimRef
from models import BadInputError, DefectError, Request, Result, parse_cpuset
from tests.driver import killed
from tests.driver.bench import Bench
from tests.driver.claims.documents import cpuset, options
from tests.driver.test_recover import go_file
from topologies import synthetic


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, reservedCPUs="0-1")


def test_a_claim_gets_cpus_that_ledger_and_cdi_file_name(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    entry = bench.preparer.prepare(ref)
    assert entry == bench.ledger.snapshot.entries["a"]
    assert (entry.namespace, entry.name, entry.pods) == ("default", "claim-a", {"pod-1"})
    assert entry.pod_names == {"pod-1": "name-of-pod-1"}
    assert entry.grants == (Grant(request="r0", pool="node-1", device="cpudevmachine", cpus=8),)
    assert len(entry.cpuset) == 8
    assert not entry.cpuset & {0, 1}
    assert entry.allocations[0].cpuset == entry.cpuset
    assert (entry.engine, entry.mems, entry.adopted) == ("greedy", frozenset(), False)
    assert bench.on_disk() == ["a.json", "dra.k8s.io-cpu_claim-a.json"]
    assert bench.containers.changes == bench.containers.waits == 1
    assert bench.recorder.engines == {"greedy": 1}
    bench.check()


def test_a_claim_is_not_answered_before_the_runtimes_process_knows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its CPUs all the same: the kubelet asks again, and is answered with them."""
    ref, knows, asked = bench.claim("a", 8), [False, False, True], list[int]()

    def know(timeout: float) -> bool:
        asked.append(bench.ledger.snapshot.version)
        return knows.pop(0)

    monkeypatch.setattr(bench.containers, "knows", know)
    assert bench.refusal(ref)[0] == "RuntimeAway"
    cpus = bench.held["a"]
    assert len(cpus) == 8
    assert asked[0] == bench.ledger.snapshot.version, "it was asked for before the claim was reserved"
    bench.check()
    assert bench.refusal(ref)[0] == "RuntimeAway", "a claim of the ledger is no exception"
    assert bench.prepare(ref) == cpus
    assert not knows
    assert bench.recorder.reasons == {"RuntimeAway": 2}
    assert bench.recorder.engines == {"ledger": 1}
    assert [reason for _, reason, _ in bench.told.events] == ["RuntimeAway"] * 2


def test_a_claim_that_waits_for_the_runtimes_process_can_be_unprepared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, waiting, done = bench.claim("a", 8), threading.Event(), threading.Event()

    def know(timeout: float) -> bool:
        if not bench.held:
            return True
        waiting.set()
        return not done.wait(60)

    monkeypatch.setattr(bench.containers, "knows", know)
    with ThreadPoolExecutor(1) as pool:
        refusal = pool.submit(bench.refusal, ref)
        assert waiting.wait(60)
        bench.preparer.unprepare(ref)
        done.set()
        assert refusal.result()[0] == "RuntimeAway"
    assert bench.held == {}
    bench.check()


def test_all_requests_of_a_claim_are_placed_together(bench: Bench) -> None:
    entry = bench.preparer.prepare(bench.claim("a", 4, 8, configs=[options(memory="bind")]))
    assert [allocation.request for allocation in entry.allocations] == ["r0", "r1"]
    assert [len(allocation.cpuset) for allocation in entry.allocations] == [4, 8]
    assert entry.cpuset == entry.allocations[0].cpuset | entry.allocations[1].cpuset
    numa = {cpu.cpu: cpu.numa for cpu in bench.topology.cpus}
    assert entry.mems == {numa[cpu] for cpu in entry.cpuset}


def test_memory_is_not_bound_to_numa_nodes_that_have_none(bench: Bench) -> None:
    bench.node = replace(bench.node, memoryless=frozenset({0, 3}))
    bench.restart()
    assert bench.preparer.prepare(bench.claim("a", 30, configs=[options(memory="bind")])).mems == {1, 2}


def test_a_claim_that_is_asked_for_again_keeps_its_cpus_and_is_not_solved_again(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    cpus = bench.prepare(ref)
    bench.prepare(bench.claim("b", 8))
    for _ in range(2):
        assert bench.prepare(ref) == cpus
        bench.restart()
    assert bench.prepare(ref) == cpus
    assert bench.recorder.solvers == {"greedy": 2}
    assert bench.recorder.engines == {"greedy": 2, "ledger": 3}
    assert bench.containers.waits == 2
    bench.check()


def test_a_missing_or_changed_cdi_file_is_written_again(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    bench.prepare(ref)
    (bench.cdi.folder / "dra.k8s.io-cpu_claim-a.json").unlink()
    bench.prepare(ref)
    bench.check()
    (bench.cdi.folder / "dra.k8s.io-cpu_claim-a.json").write_text("{}")
    bench.prepare(ref)
    bench.check()


def test_pods_that_may_carry_a_claim_are_kept_up_to_date_on_disk_too(bench: Bench) -> None:
    bench.prepare(bench.claim("a", 8))
    bench.ledger.own("a", Owner(pod_uid="pod-1", container="main"))
    bench.prepare(bench.claim("a", 8, pods=("pod-2", "pod-3")))
    bench.restart()
    entry = bench.ledger.snapshot.entries["a"]
    assert entry.pods == {"pod-2", "pod-3"}
    assert entry.owner == Owner(pod_uid="pod-1", container="main")


def test_new_pods_are_not_let_in_before_they_are_on_disk(tmp_path: Path) -> None:
    disk = Disk()
    bench = Bench(tmp_path, sync=disk.sync)
    cpus = bench.prepare(bench.claim("a", 8))
    ref = bench.claim("a", 8, pods=("pod-2",))
    disk.full = True
    for _ in range(2):
        assert bench.refusal(ref)[0] == "Disk"
    disk.full = False
    assert bench.prepare(ref) == cpus
    bench.restart()
    assert bench.ledger.snapshot.entries["a"].pods == {"pod-2"}
    bench.check()


def test_a_claim_that_was_allocated_anew_is_placed_anew_when_no_container_carries_it(bench: Bench) -> None:
    before = bench.prepare(bench.claim("a", 20))
    ref = bench.claim("a", 24)
    bench.containers.carried = {"a"}
    assert bench.refusal(ref)[0] == "ClaimChanged"
    assert bench.held == {"a": before}
    bench.containers.carried = set()
    assert len(bench.prepare(ref)) == 24
    bench.check()


@pytest.mark.parametrize(
    "changed", [{"configs": [options(allocationPolicy="distributed")]}, {"device": "cpudevmachine2"}]
)
def test_other_configs_or_devices_make_it_another_claim(bench: Bench, changed: dict[str, Any]) -> None:
    bench.prepare(bench.claim("a", 8))
    bench.containers.carried = {"a"}
    assert bench.refusal(bench.claim("a", 8, **changed))[0] == "ClaimChanged"


def test_the_old_cpus_are_kept_when_a_changed_claim_cannot_be_understood(bench: Bench) -> None:
    before = bench.prepare(bench.claim("a", 8))
    assert bench.refusal(bench.claim("a", 8, configs=[options(numaMin="many")]))[0] == "BadConfig"
    assert bench.held == {"a": before}
    bench.check()


def test_without_an_api_server_the_ledger_answers_for_what_it_has(bench: Bench) -> None:
    known, new = bench.claim("a", 8), bench.claim("b", 8)
    cpus = bench.prepare(known)
    bench.shelf.answers = False
    assert bench.prepare(known) == cpus
    assert bench.refusal(new)[0] == "ApiAway"
    assert bench.held == {"a": cpus}


@pytest.mark.parametrize("known", [False, True])
def test_a_claim_that_is_gone_or_another_one_of_its_name_is_refused(bench: Bench, known: bool) -> None:
    ref = bench.claim("a", 8)
    if known:
        bench.prepare(ref)
    document = bench.shelf.documents.pop(("default", "claim-a"))
    assert bench.refusal(ref)[0] == "ClaimGone"
    document["metadata"]["uid"] = "b"
    bench.shelf.documents["default", "claim-a"] = document
    assert bench.refusal(ref)[0] == "ClaimGone"
    assert set(bench.held) == ({"a"} if known else set())


def test_a_claim_of_dra_driver_cpu_keeps_its_cpus_and_gets_its_names(tmp_path: Path) -> None:
    go_file(tmp_path / "cdi", "a", "4-11")
    bench = Bench(tmp_path)
    ref = bench.claim("a", 4, 4)
    bench.shelf.answers = False
    assert bench.refusal(ref)[0] == "ApiAway"
    bench.shelf.answers = True
    assert bench.prepare(ref) == parse_cpuset("4-11")
    bench.restart()
    entry = bench.ledger.snapshot.entries["a"]
    assert (entry.name, entry.adopted, len(entry.grants), entry.pods) == ("claim-a", False, 2, {"pod-1"})
    assert entry.pod_names == {"pod-1": "name-of-pod-1"}
    bench.shelf.answers = False
    assert bench.prepare(ref) == parse_cpuset("4-11")
    bench.check()


def test_a_claim_of_dra_driver_cpu_with_another_number_of_cpus_was_allocated_anew(tmp_path: Path) -> None:
    go_file(tmp_path / "cdi", "a", "4-11")
    bench = Bench(tmp_path)
    bench.containers.carried = {"a"}
    assert bench.refusal(bench.claim("a", 4))[0] == "ClaimChanged"
    bench.containers.carried = set()
    assert len(bench.prepare(bench.claim("a", 4))) == 4
    bench.check()


def test_while_serving_is_wrong_only_known_claims_are_answered(bench: Bench) -> None:
    known = bench.claim("a", 8)
    cpus = bench.prepare(known)
    bench.conditions.set("ReservedOffline", "reserved CPUs 0 are not online")
    assert bench.prepare(known) == cpus
    reason, message = bench.refusal(bench.claim("b", 8))
    assert (reason, "reserved CPUs 0 are not online" in message) == ("Degraded", True)
    assert bench.refusal(bench.claim("a", 9))[0] == "Degraded"
    assert bench.held == {"a": cpus}
    bench.conditions.clear("ReservedOffline")
    bench.prepare(bench.claim("b", 8))


def test_what_does_not_fit_is_refused_with_numbers_and_the_nearest_that_would(bench: Bench) -> None:
    bench.prepare(bench.claim("a", 20))
    reason, message = bench.refusal(bench.claim("b", 12))
    assert reason == "NotPlaceable"
    assert "12 CPUs requested, 10 CPUs free" in message
    assert "cpus 10" in message
    assert bench.told.events == [("b", "NotPlaceable", message)]
    assert bench.recorder.reasons == {"NotPlaceable": 1}
    bench.check()


def test_cpus_by_number_are_given_or_refused_by_name_of_their_holder(bench: Bench) -> None:
    entry = bench.preparer.prepare(bench.claim("a", 4, configs=[cpuset("4-7")]))
    assert (entry.cpuset, entry.engine) == (parse_cpuset("4-7"), None)
    reason, message = bench.refusal(bench.claim("b", 4, configs=[cpuset("7-10")]))
    assert (reason, message) == ("Held", "CPUs 7 are held by claim default/claim-a")
    assert bench.recorder.engines == {"given": 1}
    assert bench.recorder.solvers == {}


def test_cpus_by_number_are_set_aside_before_the_rest_is_placed(bench: Bench) -> None:
    entry = bench.preparer.prepare(bench.claim("a", 2, 28, configs=[cpuset("2-3", ["r0"])]))
    assert entry.cpuset == parse_cpuset("2-31")
    assert entry.allocations[0].cpuset == parse_cpuset("4-31")


def test_the_last_shared_cpus_are_not_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path, synthetic.build("numa:1 core:24 cpu:1"), reservedCPUs="0", minSharedCPUs=1)
    reason, message = bench.refusal(bench.claim("a", 23))
    assert (reason, "shared pool" in message) == ("NoSharedCPU", True)
    assert len(bench.prepare(bench.claim("a", 22))) == 22


def test_isolated_cpus_are_given_where_the_others_have_to_stay_shared(tmp_path: Path) -> None:
    machine = synthetic.build("numa:2 core:4 cpu:1")
    bench = Bench(tmp_path, machine, isolated=parse_cpuset("4-7"))
    assert bench.prepare(bench.claim("a", 4)) == parse_cpuset("4-7")
    assert len(bench.prepare(bench.claim("b", 3))) == 3
    assert len(bench.ledger.snapshot.pool) == 1


@pytest.mark.parametrize(
    ("isolated", "settings"),
    [
        ("", {}),
        ("24-31", {"groupBy": "numanode"}),
        ("0-7,16-23", {"groupBy": "numanode", "reservedCPUs": "0", "minSharedCPUs": 3}),
        ("4-7,20-23", {"groupBy": "socket", "fullCores": True, "minSharedCPUs": 2}),
        ("9-15,25-31", {"groupBy": "socket", "minSharedCPUs": 5}),
        ("3,8", {"groupBy": "machine", "fullCores": True, "minSharedCPUs": 3}),
    ],
    ids=str,
)
def test_all_that_is_published_can_be_given_claim_by_claim(
    tmp_path: Path, isolated: str, settings: dict[str, Any]
) -> None:
    bench = Bench(tmp_path, isolated=parse_cpuset(isolated), **settings)
    left = {each.name: each.capacity for each in bench.devices if each.capacity}
    claims = [
        (name, capacity.step) for name, capacity in left.items() for _ in range(capacity.value // capacity.step)
    ]
    random.Random(1).shuffle(claims)
    for number, (device, cpus) in enumerate(claims):
        bench.prepare(bench.claim(f"c{number}", cpus, device=device))
    assert len(bench.ledger.snapshot.node.spare(bench.ledger.snapshot.held)) >= bench.node.min_shared
    bench.check()


def test_a_claim_of_another_driver_that_was_allocated_anew_on_other_devices_is_placed_anew(tmp_path: Path) -> None:
    for uid, cpus in (("a", "2-5"), ("b", "6-9"), ("c", "10-11,26-27")):
        go_file(tmp_path / "cdi", uid, cpus)
    bench = Bench(tmp_path, groupBy="numanode")
    bench.containers.carried.add("b")
    other = bench.devices.cpus("cpudevnuma003")
    assert other is not None
    assert bench.prepare(bench.claim("a", 4, device="cpudevnuma003")) <= other
    assert bench.prepare(bench.claim("b", 4, device="cpudevnuma003")) == parse_cpuset("6-9")
    assert bench.prepare(bench.claim("c", 4, device="cpudevnuma002")) == parse_cpuset("10-11,26-27")
    bench.check()


def test_devices_of_another_nodes_pool_are_refused(bench: Bench) -> None:
    ref = bench.claim("a", 2)
    document = bench.shelf.documents[ref.namespace, ref.name]
    document["status"]["allocation"]["devices"]["results"][0]["pool"] = "node-2"
    reason, message = bench.refusal(ref)
    assert (reason, "'node-2'" in message, "request r0" in message) == ("BadClaim", True, True)
    assert bench.held == {}


def test_notes_of_a_wish_are_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, groupBy="numanode")
    ref = bench.claim("a", 4, device="cpudevnuma001", configs=[options(allocationPolicy="distributed")])
    bench.prepare(ref)
    assert [reason for _, reason, _ in bench.told.events] == ["Note"]


def test_preferences_that_are_not_met_are_told_by_the_names_that_users_know(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.prepare(bench.claim("a", 8, configs=[cpuset("0-3,16-19")]))
    bench.prepare(bench.claim("b", 6, configs=[options(numaMin="all", near="0-3")]))
    notes = [(reason, message) for uid, reason, message in bench.told.events if uid == "b"]
    assert notes == [
        ("Note", "NUMA nodes missing to reach numaMin: 1"),
        ("Note", "CPUs that are not near: 6"),
    ]


def test_a_refused_claim_has_no_notes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, groupBy="numanode")
    bench.prepare(bench.claim("a", 6, device="cpudevnuma001"))
    configs = [options(allocationPolicy="distributed")]
    bench.refusal(bench.claim("b", 4, device="cpudevnuma001", configs=configs))
    assert [reason for _, reason, _ in bench.told.events] == ["NotPlaceable"]


def test_where_another_device_would_do_the_message_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, groupBy="numanode")
    bench.prepare(bench.claim("a", 7, device="cpudevnuma001"))
    ref = bench.claim("b", 2, device="cpudevnuma001", configs=[options(fullCores=True)])
    reason, message = bench.refusal(ref)
    assert reason == "NotPlaceable"
    assert "within" not in message.rpartition(". ")[2]
    assert message.endswith("would be placed with another device: delete the pod, so that it is scheduled anew")


class Slow:
    """A solver that answers as greedy does; something happens between its question and its answer."""

    def __init__(self, meanwhile: Callable[[Result], object]) -> None:
        self.meanwhile, self.asked = meanwhile, 0
        self.bench: Bench | None = None

    def solve(self, requests: Sequence[Request], free: frozenset[int]) -> Result:
        self.asked += 1
        assert self.bench is not None
        result = self.bench.greedy.solve(requests, free)
        self.meanwhile(result)
        return result

    def at(self, folder: Path) -> Bench:
        self.bench = Bench(folder, solver=self)
        return self.bench

    def steal(self, result: Result) -> None:
        """Another claim gets one of the CPUs that are about to be answered."""
        assert self.bench is not None
        cpu = min(result.allocations[0].cpuset)
        self.bench.ledger.reserve(Entry(uid=f"thief-{cpu}", cpuset=frozenset({cpu})))


def test_a_claim_that_was_overtaken_is_placed_again(tmp_path: Path) -> None:
    solver = Slow(lambda result: solver.asked == 1 and solver.steal(result))
    bench = solver.at(tmp_path)
    cpus = bench.prepare(bench.claim("a", 8))
    assert len(bench.held) == 2
    assert bench.held["a"] == cpus
    assert solver.asked == 2
    assert bench.recorder.engines == {"greedy": 1}


def test_a_claim_that_is_always_overtaken_is_served_greedily(tmp_path: Path) -> None:
    solver = Slow(lambda result: solver.steal(result))
    bench = solver.at(tmp_path)
    assert len(bench.prepare(bench.claim("a", 8))) == 8
    assert solver.asked == placing.EXACT_TRIES
    assert bench.recorder.fallbacks == {"timeout": 1}


def test_nobody_asks_again_for_ever(tmp_path: Path) -> None:
    solver = Slow(lambda result: solver.steal(result))
    bench = solver.at(tmp_path)
    bench.greedy, greedy = solver, bench.greedy
    bench.restart()
    bench.greedy = greedy
    assert bench.refusal(bench.claim("a", 8))[0] == "NotDecided"
    assert solver.asked == placing.EXACT_TRIES + placing.GREEDY_TRIES
    assert "a" not in bench.held


def raise_(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInputError("no such device", place="near"), "BadConfig"),
        (DefectError("sizes differ"), "Defect"),
        (ZeroDivisionError(), "Defect"),
        (MemoryError(), "Defect"),
    ],
)
def test_whatever_the_solver_raises_nothing_is_held_and_the_next_claim_is_served(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    solver = Slow(raise_(error))
    bench = solver.at(tmp_path)
    ref = bench.claim("a", 8)
    assert bench.refusal(ref)[0] == reason
    assert bench.recorder.reasons == {reason: 1}
    bench.check()
    assert bench.held == {}
    solver.meanwhile = lambda _: None
    bench.prepare(ref)


class Disk:
    """``fsync`` of a disk that can be full or stalled."""

    def __init__(self) -> None:
        self.full = False
        self.stall_at = ""
        self.stalled, self.go_on = threading.Event(), threading.Event()

    def sync(self, handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        if self.full and name.endswith(".new"):
            raise OSError(28, "No space left on device", name)
        if self.stall_at and self.stall_at in name:
            self.stalled.set()
            assert self.go_on.wait(60)


def test_on_a_full_disk_a_claim_is_refused_and_holds_nothing(tmp_path: Path) -> None:
    disk = Disk()
    bench = Bench(tmp_path, sync=disk.sync)
    held = bench.prepare(bench.claim("a", 8))
    disk.full = True
    ref = bench.claim("b", 8)
    reason, message = bench.refusal(ref)
    assert (reason, "No space left on device" in message) == ("Disk", True)
    assert bench.held == {"a": held}
    bench.check()
    bench.preparer.unprepare(bench.claim("a", 8))
    assert bench.held == {}
    bench.check()
    disk.full = False
    bench.prepare(ref)
    bench.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "cpusat-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_on_a_disk_that_is_really_full_prepare_is_refused_and_unprepare_works(small_disk: Path) -> None:
    bench = Bench(small_disk)
    a = bench.claim("a", 8)
    bench.prepare(a)
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    assert bench.refusal(bench.claim("b", 8))[0] == "Disk"
    assert set(bench.held) == {"a"}
    assert bench.on_disk() == ["a.json", "dra.k8s.io-cpu_claim-a.json", "filler"]
    bench.preparer.unprepare(a)
    assert bench.on_disk() == ["filler"]
    bench.restart()
    assert bench.held == {}


def test_a_cdi_file_that_cannot_be_written_undoes_the_claim(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(bench.cdi), "write", raise_(OSError(30, "Read-only file system")))
        assert bench.refusal(bench.claim("a", 8))[0] == "Disk"
    assert bench.held == {}
    bench.check()


def test_a_claim_that_cannot_be_undone_keeps_its_cpus_until_it_can_be_prepared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = bench.claim("a", 8)
    with monkeypatch.context() as patched:
        for method in ("write", "remove"):
            patched.setattr(type(bench.cdi), method, raise_(OSError(30, "Read-only file system")))
        assert bench.refusal(ref)[0] == "Disk"
        (cpus,) = bench.held.values()
    assert not bench.prepare(bench.claim("b", 8)) & cpus
    assert bench.prepare(ref) == cpus
    bench.check()


def test_a_claim_whose_ledger_file_was_never_flushed_is_written_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    bench = Bench(tmp_path, sync=disk.sync)
    ref = bench.claim("a", 8)
    disk.full = True
    with monkeypatch.context() as patched:
        patched.setattr(type(bench.cdi), "remove", raise_(OSError(5, "Input/output error")))
        assert bench.refusal(ref)[0] == "Disk"
    (cpus,) = bench.held.values()
    assert bench.refusal(ref)[0] == "Disk"
    disk.full = False
    assert bench.prepare(ref) == cpus
    bench.restart()
    assert bench.held == {"a": cpus}


def test_what_must_outlive_a_power_cut_is_flushed_and_nothing_else(tmp_path: Path) -> None:
    """A flush takes milliseconds. CDI files follow from the ledger; but one that came back without its entry would
    be taken for another driver's."""
    flushed: list[str] = []

    def sync(handle: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    bench = Bench(tmp_path, sync=sync, shows=True)
    ref = bench.claim("a", 8)
    bench.prepare(bench.claim("first", 1))
    flushed.clear()
    bench.prepare(ref)
    assert flushed == [".a.json.new", "ledger"]
    bench.prepare(ref)
    bench.preparer.unprepare(ref)
    assert flushed[2:] == ["cdi", "ledger"]


@pytest.mark.parametrize("left", [None, b"", b'{"cdiVersion": "0.5'])
def test_cdi_files_that_a_power_cut_has_taken_or_torn_come_back_from_the_ledger(
    bench: Bench, left: bytes | None
) -> None:
    cpus = bench.prepare(bench.claim("a", 8))
    for file in bench.cdi.folder.iterdir():
        file.unlink() if left is None else file.write_bytes(left)
    bench.restart()
    assert bench.held == {"a": cpus}
    bench.check()


def test_unpreparing_frees_the_cpus_and_leaves_no_file(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    bench.prepare(ref)
    bench.shelf.documents.clear()
    bench.preparer.unprepare(ref)
    assert bench.held == {}
    assert bench.on_disk() == []
    bench.preparer.unprepare(ref)
    bench.preparer.unprepare(ClaimRef("never", "default", "never"))
    assert bench.recorder.released == 1
    assert bench.recorder.sizes == [8]
    assert bench.recorder.reasons == {}
    assert bench.shelf.asked == 1


def test_a_claim_whose_files_cannot_be_removed_keeps_its_cpus(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = bench.claim("a", 8)
    cpus = bench.prepare(ref)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", raise_(OSError(30, "Read-only file system")))
        with pytest.raises(RefusedError, match=r"Disk: .*Read-only file system"):
            bench.preparer.unprepare(ref)
    assert bench.held == {"a": cpus}
    bench.preparer.unprepare(ref)
    assert bench.held == {}


def test_a_claim_is_released_only_if_that_is_still_right_once_nobody_can_change_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = bench.claim("a", 8)
    cpus = bench.prepare(ref)
    locked = bench.ledger.locks._users
    assert not bench.preparer.release_if(ref, lambda: "a" not in locked)
    with bench.ledger.locks.of("a"):
        assert not bench.preparer.release_if(ref, lambda: True), "somebody works on it"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", raise_(OSError(30, "Read-only file system")))
        with pytest.raises(RefusedError, match="Disk"):
            bench.preparer.release_if(ref, lambda: True)
    assert bench.held == {"a": cpus}
    assert bench.recorder.released == 0
    assert bench.preparer.release_if(ref, lambda: "a" in locked)
    assert (bench.held, bench.on_disk(), bench.recorder.released) == ({}, [], 1)


def test_the_releaser_sees_that_a_claim_was_prepared_again_though_nothing_of_it_has_changed(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    seen = []
    for bench.shelf.answers in (True, True, False):
        bench.prepare(ref)
        seen.append(bench.ledger.touched()["a"])
    assert len(set(seen)) == 3


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "a" * 64, "ü", "a\n"])
def test_what_is_no_uid_is_refused_before_anything_is_asked(bench: Bench, uid: str) -> None:
    ref = ClaimRef(uid, "default", "claim")
    assert bench.refusal(ref)[0] == "BadClaim"
    with pytest.raises(RefusedError, match="is no uid"):
        bench.preparer.unprepare(ref)
    assert bench.shelf.asked == 0


def test_a_call_that_nobody_waits_for_any_more_changes_nothing(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    with pytest.raises(RefusedError, match="Busy"):
        bench.preparer.prepare(ref, lambda: False)
    assert bench.held == {}
    cpus = bench.prepare(ref)
    with pytest.raises(RefusedError, match="Busy"):
        bench.preparer.unprepare(ref, lambda: False)
    assert bench.held == {"a": cpus}
    assert bench.told.events == []


def test_a_disk_that_stalls_holds_up_nobody_but_the_claim_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    bench = Bench(tmp_path, sync=disk.sync)
    bench.busy = 0.01
    bench.restart()
    slow, others = bench.claim("slow", 4), [bench.claim(f"c{n}", 4) for n in range(5)]
    disk.stall_at = "slow.json"
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(bench.prepare, slow)
        assert disk.stalled.wait(60)
        assert sum(len(bench.prepare(ref)) for ref in others) == 20
        bench.preparer.unprepare(others[0])
        assert bench.refusal(slow)[0] == "Busy"
        assert "slow" in bench.ledger.snapshot.entries
        disk.go_on.set()
        assert len(call.result(60)) == 4
    bench.check()


def test_a_solver_that_hangs_holds_up_nobody_but_the_claim_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "PATIENCE", 0.01)
    asked, go_on = threading.Event(), threading.Event()

    def hang(_: Result) -> None:
        asked.set()
        assert go_on.wait(60)

    solver = Slow(hang)
    bench = solver.at(tmp_path)
    slow, others = bench.claim("slow", 4), [bench.claim(f"c{n}", 4) for n in range(6)]
    with ThreadPoolExecutor(7) as pool:
        call = pool.submit(bench.prepare, slow)
        assert asked.wait(60)
        assert sum(map(len, pool.map(bench.prepare, others))) == 24
        go_on.set()
        assert len(call.result(60)) == 4
    bench.check()


def test_64_claims_at_once_all_get_cpus_of_their_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path, synthetic.build("socket:2 numa:4 l3:2 core:8 cpu:2"))
    refs = [bench.claim(f"c{n:02d}", 2 + n % 4) for n in range(64)]
    with ThreadPoolExecutor(32) as pool:
        cpus = list(pool.map(bench.prepare, refs))
    assert [len(each) for each in cpus] == [2 + n % 4 for n in range(64)]
    assert sum(map(len, cpus)) == len(frozenset().union(*cpus)) == 224
    bench.check()
    assert bench.recorder.solvers["greedy"] == 64
    bench.restart()
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(bench.prepare, refs)) == cpus
        list(pool.map(bench.preparer.unprepare, refs))
    assert bench.held == {}
    assert bench.on_disk() == []


def test_the_same_claim_asked_for_by_many_at_once_is_placed_once(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(bench.prepare, [ref] * 16))) == 1
    assert bench.recorder.engines == {"greedy": 1, "ledger": 15}
    bench.check()


def test_masks_that_do_not_settle_are_only_a_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.containers.settles = False
    bench.prepare(bench.claim("a", 8))
    assert "other containers are still on CPUs of claim default/claim-a" in caplog.text


def test_a_kill_between_any_two_steps_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    """The steps are run by ``tests.driver.killed`` in processes that kill themselves, each one step later."""
    command = [sys.executable, "-m", "tests.driver.killed", str(tmp_path)]
    subprocess.run(command, check=True, timeout=600, cwd=Path(__file__).parents[2])
    runs = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    assert len(runs) > 40
    assert killed.finished(runs[-1])
    assert not any(killed.finished(run) for run in runs[:-1])
    for run in runs:
        killed.check_after_restart(run)


def test_a_claim_that_the_ledger_has_waits_for_the_api_server_for_a_shorter_time(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    cpus = bench.prepare(ref)
    bench.shelf.answers = False
    assert bench.prepare(ref) == cpus
    assert bench.shelf.patience == [prepare.UNKNOWN, prepare.KNOWN]
    assert bench.behind == ["a"], "the look is to be made up for"


def test_a_claim_that_is_behind_the_api_server_is_brought_up_to_date(bench: Bench) -> None:
    cpus = bench.prepare(bench.claim("a", 8))
    bench.claim("a", 8, pods=("pod-1", "pod-2"))
    bench.preparer.renew("a")
    assert bench.held == {"a": cpus}
    assert bench.ledger.snapshot.entries["a"].pods == {"pod-1", "pod-2"}
    bench.check()


def test_a_claim_that_was_allocated_anew_unseen_is_placed_anew_unless_a_container_carries_it(
    bench: Bench,
) -> None:
    before = bench.prepare(bench.claim("a", 8))
    bench.claim("a", 10)
    bench.containers.carried = {"a"}
    with pytest.raises(RefusedError, match="ClaimChanged"):
        bench.preparer.renew("a")
    assert bench.held == {"a": before}
    bench.containers.carried = set()
    bench.preparer.renew("a")
    assert len(bench.held["a"]) == 10
    bench.check()


def test_what_the_ledger_does_not_have_is_not_brought_in_by_a_look(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    bench.preparer.renew("a")
    assert (bench.held, bench.shelf.asked) == ({}, 0)
    bench.prepare(ref)
    bench.shelf.meanwhile = lambda: bench.preparer.unprepare(ref)
    bench.preparer.renew("a")
    assert bench.held == {}
    assert bench.on_disk() == []


def test_an_api_server_that_hangs_holds_no_lock(bench: Bench) -> None:
    """Others change the claim meanwhile; what was seen before that is not acted upon."""
    ref = bench.claim("a", 8)
    looks = []

    def meanwhile() -> None:
        looks.append(ref)
        if len(looks) == 1:
            bench.prepare(bench.claim("a", 8, pods=("pod-2",)))
            bench.preparer.unprepare(ref)
            bench.prepare(bench.claim("a", 8, pods=("pod-2", "pod-3")))

    bench.shelf.meanwhile = meanwhile
    assert len(bench.prepare(ref)) == 8
    assert bench.ledger.snapshot.entries["a"].pods == {"pod-2", "pod-3"}
    bench.check()


def test_a_look_that_is_older_than_the_ledger_does_not_undo_it(bench: Bench) -> None:
    bench.prepare(bench.claim("a", 8))
    first = [True]

    def meanwhile() -> None:
        if first and first.pop():
            bench.prepare(bench.claim("a", 8, pods=("pod-1", "pod-2")))

    bench.shelf.meanwhile = meanwhile
    bench.preparer.renew("a")
    assert bench.ledger.snapshot.entries["a"].pods == {"pod-1", "pod-2"}


def test_a_claim_that_changes_at_every_look_is_given_up(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    bench.prepare(ref)
    numbers = iter(range(100))

    def change() -> None:
        entry = bench.ledger.snapshot.entries["a"]
        bench.ledger.update(entry.model_copy(update={"pods": frozenset({f"pod-{next(numbers)}"})}))

    bench.shelf.meanwhile = change
    assert bench.refusal(ref)[0] == "Busy"
    assert next(numbers) == prepare.LOOKS


def test_the_stages_of_a_prepare_are_counted_once_each(bench: Bench) -> None:
    ref = bench.claim("a", 8)
    bench.prepare(ref)
    assert bench.recorder.stages == {"get": 1, "solve": 1, "write": 1, "settle": 1}
    bench.prepare(ref)
    assert bench.recorder.stages == {"get": 2, "solve": 1, "write": 1, "settle": 1}


def test_a_claim_that_is_released_before_the_runtime_knows_it_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CPUs may be another claim's by then."""
    bench = Bench(tmp_path)
    ref, other = bench.claim("a", 31), bench.claim("b", 31)

    def release_meanwhile(timeout: float) -> bool:
        monkeypatch.undo()
        bench.preparer.unprepare(ref)
        bench.prepare(other)
        return True

    monkeypatch.setattr(bench.containers, "knows", release_meanwhile)
    reason, message = bench.refusal(ref)
    assert (reason, "released while it was being prepared" in message) == ("ClaimGone", True)
    assert bench.held.keys() == {"b"}
    bench.check()
