import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from driver.errors import RefusedError
from driver.ledger import book
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry, Owner, Snapshot
from driver.ledger.files import Files
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from models import parse_cpuset
from tests.driver.cluster.waiting import until

NODE = NodeCPUs(frozenset(range(16)), reserved=frozenset({0}), min_shared=2)
"""CPUs 1 to 15 can be given, all but two of them."""

OWNER = Owner(pod_uid="pod-1", container="main")


def entry(uid: str, cpus: str, **more: object) -> Entry:
    return Entry.model_validate({"uid": uid, "cpuset": cpus, **more})


def holds(snapshot: Snapshot) -> dict[str, frozenset[int]]:
    return {uid: each.cpuset for uid, each in snapshot.entries.items()}


def no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def read_only(*_: object, **__: object) -> None:
    raise OSError(30, "Read-only file system")


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    """Opens the ledger anew, as after a kill."""
    opened: list[Ledger] = []

    def reopen(node: NodeCPUs = NODE, **how: object) -> Ledger:
        opened.append(Ledger.open(node, Files(tmp_path / "ledger", **how)))  # type: ignore[arg-type]
        return opened[-1]

    yield reopen
    for each in opened:
        each.close()


@pytest.fixture
def ledger(reopen: Callable[..., Ledger]) -> Ledger:
    return reopen()


def test_a_claim_holds_its_cpus_from_the_moment_they_are_reserved(ledger: Ledger) -> None:
    before = ledger.snapshot
    ledger.reserve(entry("a", "1-4"))
    after = ledger.snapshot
    assert (before.held, before.free) == (frozenset(), parse_cpuset("1-15"))
    assert (after.held, after.free, after.pool) == (
        parse_cpuset("1-4"),
        parse_cpuset("5-15"),
        parse_cpuset("5-15"),
    )


@pytest.mark.parametrize(
    ("cpus", "reason", "says"),
    [
        ("4-5", "Held", "CPUs 4 are held by claim default/first"),
        ("0", "Held", "CPUs 0 are reserved or not online"),
        ("15-16", "Held", "CPUs 16 are reserved or not online"),
        ("5-14", "NoSharedCPU", "1 CPUs would be left in the shared pool, and 2 must stay"),
        ("", "Defect", "is to hold none"),
    ],
)
def test_cpus_that_cannot_be_given_are_refused_and_nothing_changes(
    ledger: Ledger, cpus: str, reason: str, says: str
) -> None:
    ledger.reserve(entry("a", "1-4", namespace="default", name="first"))
    before = ledger.snapshot
    with pytest.raises(RefusedError, match=says) as refused:
        ledger.reserve(entry("b", cpus))
    assert refused.value.reason == reason
    assert ledger.snapshot is before


def test_a_claim_must_be_forgotten_before_it_gets_other_cpus(ledger: Ledger) -> None:
    ledger.reserve(entry("a", "1-4"))
    for take in (ledger.reserve, ledger.adopt):
        with pytest.raises(RefusedError, match="holds CPUs already") as refused:
            take(entry("a", "5-6"))
        assert refused.value.reason == "Defect"
    ledger.forget("a")
    ledger.reserve(entry("a", "3-6"))
    assert holds(ledger.snapshot) == {"a": parse_cpuset("3-6")}


def test_isolated_cpus_do_not_count_as_shared(reopen: Callable[..., Ledger]) -> None:
    ledger = reopen(NodeCPUs(frozenset(range(8)), frozenset(), isolated=frozenset({4, 5, 6, 7}), min_shared=1))
    ledger.reserve(entry("a", "1-3"))
    with pytest.raises(RefusedError, match="0 CPUs would be left"):
        ledger.reserve(entry("b", "0"))
    ledger.reserve(entry("b", "4-7"))
    assert ledger.snapshot.pool == {0}


def test_what_was_written_is_there_after_a_kill_and_what_was_not_is_not(reopen: Callable[..., Ledger]) -> None:
    ledger = reopen()
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    ledger.reserve(entry("b", "5"))
    assert holds(reopen().snapshot) == {"a": parse_cpuset("1-4")}
    ledger.forget("a")
    assert holds(ledger.snapshot) == {"b": {5}}
    assert holds(reopen().snapshot) == {}


def test_forgetting_frees_the_cpus_only_when_the_file_is_gone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    held = []
    monkeypatch.setattr(Files, "remove", lambda *_: held.append(ledger.snapshot.held))
    ledger.forget("a")
    assert held == [parse_cpuset("1-4")]
    assert ledger.snapshot.held == frozenset()


def test_a_claim_whose_file_cannot_be_removed_keeps_its_cpus(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", read_only)
        with pytest.raises(OSError, match="Read-only"):
            ledger.forget("a")
    assert ledger.snapshot.held == parse_cpuset("1-4")
    ledger.forget("a")
    assert ledger.snapshot.held == frozenset()


def test_it_is_known_whether_a_file_says_what_memory_does(reopen: Callable[..., Ledger]) -> None:
    ledger = reopen(sync=no_space)
    ledger.reserve(entry("a", "1-4"))
    assert not ledger.stands("a")
    with pytest.raises(OSError, match="No space"):
        ledger.write("a")
    assert not ledger.stands("a")
    ledger = reopen()
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    assert ledger.stands("a")
    ledger.update(entry("a", "1-4", pods=["pod-2"]))
    assert not ledger.stands("a")
    assert reopen().stands("a")


def test_an_update_changes_neither_cpus_nor_owner_and_no_claim_that_is_gone(ledger: Ledger) -> None:
    ledger.reserve(entry("a", "1-4"))
    ledger.own("a", OWNER)
    ledger.update(entry("a", "9", pods=["pod-2"]))
    ledger.update(entry("b", "9"))
    assert ledger.snapshot.entries == {"a": entry("a", "1-4", pods=["pod-2"], owner=OWNER)}


def test_an_owner_is_known_at_once_and_on_disk_when_the_ledger_is_closed(reopen: Callable[..., Ledger]) -> None:
    ledger = reopen()
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    ledger.own("a", OWNER)
    ledger.own("unknown", OWNER)
    assert ledger.snapshot.entries["a"].owner == OWNER
    ledger.close()
    assert reopen().snapshot.entries == {"a": entry("a", "1-4", owner=OWNER)}


def test_an_owner_that_comes_while_the_last_one_is_written_is_on_disk_too(reopen: Callable[..., Ledger]) -> None:
    stalled, go_on = threading.Event(), threading.Event()

    def flush(_: int) -> None:
        if threading.current_thread().name == "ledger" and not stalled.is_set():
            stalled.set()
            assert go_on.wait(60)

    ledger = reopen(sync=flush)
    for uid, cpus in (("a", "1-4"), ("b", "5")):
        ledger.reserve(entry(uid, cpus))
        ledger.write(uid)
    ledger.own("a", OWNER)
    assert stalled.wait(60)
    ledger.own("b", OWNER)
    closing = threading.Thread(target=ledger.close)
    closing.start()
    while not ledger._closed.is_set():
        closing.join(0.01)
    go_on.set()
    closing.join(60)
    assert reopen().snapshot.entries["b"].owner == OWNER


def test_an_owner_that_the_disk_did_not_take_is_written_later(
    reopen: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "PAUSE", 0.01)
    failures, written = [OSError(28, "full"), OSError(28, "full")], threading.Event()

    def flush(_: int) -> None:
        if threading.current_thread().name != "ledger":
            return
        if failures:
            raise failures.pop()
        written.set()

    ledger = reopen(sync=flush)
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    ledger.own("a", OWNER)
    assert written.wait(60)
    ledger.close()
    assert reopen().snapshot.entries["a"].owner == OWNER


def test_to_tell_an_owner_does_not_wait_for_the_disk_or_the_claims_lock(reopen: Callable[..., Ledger]) -> None:
    stalled, go_on = threading.Event(), threading.Event()

    def flush(_: int) -> None:
        if threading.current_thread().name == "slow":
            stalled.set()
            assert go_on.wait(60)

    ledger = reopen(sync=flush)

    def write() -> None:
        with ledger.locks.of("a"):
            ledger.write("a")

    ledger.reserve(entry("a", "1-4"))
    slow = threading.Thread(target=write, name="slow")
    slow.start()
    assert stalled.wait(60)
    ledger.own("a", OWNER)
    ledger.reserve(entry("b", "5"))
    ledger.write("b")
    assert ledger.snapshot.held == parse_cpuset("1-5")
    go_on.set()
    slow.join(60)
    ledger.close()
    assert reopen().snapshot.entries["a"].owner == OWNER


def test_listeners_are_called_after_each_change_without_a_lock(ledger: Ledger) -> None:
    seen: list[frozenset[int]] = []

    def listener() -> None:
        seen.append(ledger.snapshot.held)
        if len(seen) == 1:
            ledger.reserve(entry("b", "9"))

    ledger.listen(listener)
    ledger.reserve(entry("a", "1-2"))
    ledger.own("a", OWNER)
    ledger.forget("a")
    assert seen == [{1, 2}, {1, 2, 9}, {9}]


def test_claims_are_kept_whatever_has_become_of_their_cpus(reopen: Callable[..., Ledger]) -> None:
    ledger = reopen()
    ledger.reserve(entry("a", "1-4"))
    ledger.write("a")
    ledger = reopen(NodeCPUs(frozenset(range(4)), reserved=frozenset({0, 1})))
    assert ledger.snapshot.held == parse_cpuset("1-4")
    assert ledger.snapshot.free == frozenset()
    ledger.update(entry("a", "1-4", pods=["pod-2"]))
    ledger.write("a")
    ledger.forget("a")
    assert ledger.snapshot.free == parse_cpuset("2-3")


def test_cpus_of_a_torn_file_are_held_until_the_file_is_dealt_with(
    tmp_path: Path, reopen: Callable[..., Ledger]
) -> None:
    reopen()
    (tmp_path / "ledger/a.json").write_text('{"uid": "a", "cpuset": "3-4,99", "mems":')
    ledger = reopen()
    assert ledger.snapshot.quarantined == {3, 4}
    with pytest.raises(RefusedError, match="CPUs 4 are held by a file of the ledger in quarantine"):
        ledger.reserve(entry("b", "4-5"))
    ledger.forget("a")
    assert ledger.snapshot.quarantined == {3, 4}
    (tmp_path / "ledger/quarantine/a.json").unlink()
    assert reopen().snapshot.held == frozenset()


def test_a_claim_gets_back_the_cpus_that_its_own_torn_file_names(
    tmp_path: Path, reopen: Callable[..., Ledger]
) -> None:
    reopen()
    (tmp_path / "ledger/a.json").write_text('{"uid": "a", "cpuset": "3-4')
    ledger = reopen()
    assert "a.json: is torn" in (ledger.unsure() or "")
    ledger.adopt(entry("a", "3-7", adopted=True))
    assert ledger.unsure() is None
    assert ledger.snapshot.held == parse_cpuset("3-7")


def test_a_torn_file_that_names_all_its_cpus_leaves_no_doubt(
    tmp_path: Path, reopen: Callable[..., Ledger]
) -> None:
    reopen()
    (tmp_path / "ledger/a.json").write_text('{"uid": "a", "cpuset": "3-4", "me')
    (tmp_path / "ledger/foreign.txt").write_text("hello")
    assert reopen().unsure() is None


def test_two_claims_are_not_taken_over_with_the_same_cpu(ledger: Ledger) -> None:
    ledger.adopt(entry("a", "0-3"))
    with pytest.raises(RefusedError, match="CPUs 3 are held by claim a"):
        ledger.adopt(entry("b", "3-5"))
    ledger.withhold("b", parse_cpuset("3-5,77"))
    assert ledger.snapshot.held == parse_cpuset("0-5")
    ledger.forget("b")
    assert ledger.snapshot.held == parse_cpuset("0-3")


UIDS, CPUS = st.sampled_from("abcd"), st.frozensets(st.integers(0, 16), max_size=8)


class Steps(RuleBasedStateMachine):
    """A ledger against dictionaries of what memory and disk should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.full = TemporaryDirectory(), False
        self.memory: dict[str, frozenset[int]] = {}
        self.disk: dict[str, frozenset[int]] = {}
        self.open()

    def open(self) -> None:
        self.ledger = Ledger.open(NODE, Files(Path(self.folder.name) / "ledger", self.flush))

    def flush(self, handle: int) -> None:
        if self.full and "ledger/." in str(Path(f"/proc/self/fd/{handle}").readlink()):
            no_space(handle)

    @rule(uid=UIDS, cpus=CPUS)
    def reserve(self, uid: str, cpus: frozenset[int]) -> None:
        held = frozenset[int]().union(*self.memory.values())
        possible = cpus and cpus <= NODE.allocatable - held and len(NODE.allocatable - held - cpus) >= 2
        try:
            self.ledger.reserve(Entry(uid=uid, cpuset=cpus))
            assert possible
            assert uid not in self.memory
            self.memory[uid] = cpus
        except RefusedError:
            assert not possible or uid in self.memory

    @rule(uid=UIDS)
    def write(self, uid: str) -> None:
        if uid in self.memory and not self.full:
            self.ledger.write(uid)
            self.disk[uid] = self.memory[uid]
        elif uid in self.memory:
            with pytest.raises(OSError, match="No space"):
                self.ledger.write(uid)

    @rule(uid=UIDS)
    def forget(self, uid: str) -> None:
        self.ledger.forget(uid)
        self.memory.pop(uid, None)
        self.disk.pop(uid, None)

    @rule(full=st.booleans())
    def fill_or_clear_the_disk(self, full: bool) -> None:
        self.full = full

    @rule()
    def kill(self) -> None:
        self.ledger.close()
        self.open()
        self.memory = dict(self.disk)

    @invariant()
    def memory_is_as_it_should_be(self) -> None:
        assert holds(self.ledger.snapshot) == self.memory
        assert self.disk.items() <= self.memory.items()
        assert self.ledger.snapshot.quarantined == frozenset()

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()


test_steps_in_any_order = Steps.TestCase
test_steps_in_any_order.settings = settings(max_examples=30, stateful_step_count=30)


def test_cpus_that_were_withheld_are_free_again_and_those_of_the_entry_stay_held(ledger: Ledger) -> None:
    ledger.withhold("a", parse_cpuset("1-4"))
    ledger.reserve(entry("a", "8-9"))
    assert ledger.withheld() == ["a"]
    ledger.give_back("a")
    assert ledger.withheld() == []
    assert ledger.snapshot.held == parse_cpuset("8-9")
    ledger.give_back("never")
    assert ledger.snapshot.held == parse_cpuset("8-9")


def test_who_is_withheld_can_be_asked_while_it_changes(ledger: Ledger) -> None:
    class Slow(dict[str, frozenset[int]]):
        def __iter__(self) -> Iterator[str]:
            for name in super().__iter__():
                other = threading.Thread(target=ledger.withhold, args=("b", parse_cpuset("5")))
                other.start()
                other.join(0.1)
                yield name

    ledger._withheld = Slow({"claim a": parse_cpuset("1")})
    assert ledger.withheld() == ["a"]
    until(lambda: "claim b" in ledger._withheld)


def test_each_touch_of_a_claim_gives_it_another_number(ledger: Ledger) -> None:
    ledger.reserve(entry("a", "1"))
    ledger.reserve(entry("b", "2"))
    seen = []
    for uid in ("a", "b", "a"):
        ledger.touch(uid)
        seen.append(ledger.touched()[uid])
    ledger.forget("a")
    assert set(ledger.touched()) == {"b"}
    ledger.reserve(entry("a", "1"))
    ledger.touch("a")
    seen.append(ledger.touched()["a"])
    assert len(set(seen)) == 4
    ledger.touch("never")
    assert set(ledger.touched()) == {"a", "b"}


def test_cpus_that_the_kubelet_has_given_leave_pool_and_offer_and_are_refused(ledger: Ledger) -> None:
    heard: list[frozenset[int]] = []
    ledger.reserve(entry("a", "1-2"))
    ledger.listen(lambda: heard.append(ledger.snapshot.pool))
    for _ in range(2):
        ledger.set_foreign(Foreign({"ns/p/c": frozenset({0, 2, 3, 4})}))
    assert heard == [frozenset(range(5, 16))]
    assert ledger.snapshot.free == frozenset(range(5, 16))
    assert ledger.snapshot.claimed == ledger.snapshot.held == {1, 2}
    with pytest.raises(RefusedError, match="Held: CPUs 4 are held by the kubelet's CPU manager"):
        ledger.reserve(entry("b", "4-5"))
    with pytest.raises(RefusedError, match="1 CPUs would be left in the shared pool"):
        ledger.reserve(entry("b", "5-14"))
    ledger.reserve(entry("b", "5-13"))
    ledger.forget("b")
    assert ledger.snapshot.foreign.given == {0, 2, 3, 4}


def test_the_pool_is_never_empty_for_what_the_kubelet_has_given() -> None:
    """Containers have to run somewhere; claims keep theirs."""
    foreign = Foreign({"ns/p/c": frozenset(range(16))})
    assert Snapshot(NODE, {"a": entry("a", "1-15")}, foreign=foreign).pool == {0}
    assert Snapshot(NODE, {"a": entry("a", "1-14")}, foreign=foreign).pool == {15}


def test_files_in_quarantine_keep_no_container_off_reserved_cpus_but_off_all_others() -> None:
    everything, all_but_reserved = NODE.online, NODE.allocatable
    for quarantined in (everything, all_but_reserved):
        assert Snapshot(NODE, {}, quarantined=quarantined).pool == {0}
    assert Snapshot(NODE, {"a": entry("a", "0")}, quarantined=everything).pool == frozenset()
    assert Snapshot(replace(NODE, offline=frozenset({0})), {}, quarantined=everything).pool == frozenset()
    assert Snapshot(replace(NODE, reserved=frozenset()), {}, quarantined=everything).pool == frozenset()


def test_a_claim_that_is_taken_over_keeps_its_cpus_whoever_the_kubelet_has_given_them_to(ledger: Ledger) -> None:
    ledger.set_foreign(Foreign({"ns/p/c": frozenset({2, 3})}))
    ledger.adopt(entry("a", "2-4"))
    assert ledger.snapshot.claimed == {2, 3, 4}


@pytest.mark.parametrize(
    ("foreign", "bars"),
    [
        (Foreign(), False),
        (Foreign(known=False), True),
        (Foreign(static=True), True),
        (Foreign({"ns/p/c": frozenset({1})}), True),
    ],
    ids=str,
)
def test_nothing_can_be_promised_beside_a_manager_that_gives_or_that_nobody_knows(
    foreign: Foreign, bars: bool
) -> None:
    assert foreign.bars is bars
