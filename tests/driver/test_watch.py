import threading
from pathlib import Path

import pytest

from driver import watch as watch_module
from driver.conditions import Conditions
from driver.ledger.entry import Entry, Snapshot
from driver.node import NodeCPUs
from driver.watch import Watch, isolated, online_now, reserved_offline, topology_changed, unwritable

NODE = NodeCPUs(frozenset(range(8)), reserved=frozenset({0}))


def snapshot(*cpus: int) -> Snapshot:
    return Snapshot(NODE, {"u": Entry(uid="u", cpuset=frozenset(cpus))} if cpus else {})


def test_a_condition_is_set_while_its_check_says_why_and_cleared_after() -> None:
    conditions, why = Conditions(), ["it is so"]
    watch = Watch([("TopologyChanged", lambda: why[0] or None)], conditions)
    watch.look()
    assert conditions.current() == {"TopologyChanged": "it is so"}
    why[0] = ""
    watch.look()
    assert conditions.current() == {}


def broken() -> str | None:
    raise RuntimeError("dictionary changed size during iteration")


def test_a_check_that_fails_stops_no_other_and_its_condition_stays(caplog: pytest.LogCaptureFixture) -> None:
    conditions, first = Conditions(), [lambda: "it is so"]
    watch = Watch([("TopologyChanged", lambda: first[0]()), ("NRIAway", lambda: "away")], conditions)
    watch.look()
    conditions.clear("NRIAway")
    first[0] = broken
    watch.look()
    assert conditions.current() == {"TopologyChanged": "it is so", "NRIAway": "away"}
    assert "TopologyChanged could not be checked" in caplog.text


def test_a_condition_holds_when_its_check_fails_again_and_again_until_it_works() -> None:
    conditions, check = Conditions(), [lambda: None]
    watch = Watch([("TopologyChanged", lambda: check[0]())], conditions)
    for check[0], holds in [
        (lambda: None, 0),
        (broken, 0),
        (broken, 0),
        (broken, 1),
        (lambda: None, 0),
        (broken, 0),
    ]:
        watch.look()
        assert len(conditions.current()) == holds


def test_a_condition_holds_when_its_check_has_never_worked() -> None:
    conditions = Conditions()
    Watch([("TopologyChanged", broken)], conditions).look()
    assert "RuntimeError: dictionary changed size" in conditions.current()["TopologyChanged"]


def test_the_thread_survives_whatever_a_check_or_a_listener_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "PERIOD", 0.001)
    conditions, looks = Conditions(), threading.Semaphore(0)

    def check() -> str:
        looks.release()
        return broken() or ""

    conditions.listen(broken)
    watch = Watch([("TopologyChanged", check)], conditions)
    watch.start()
    for _ in range(10):
        assert looks.acquire(timeout=30)
    watch.stop()


@pytest.mark.parametrize(
    ("online", "held", "says"),
    [
        (range(8), (2, 3), None),
        (range(7), (2, 7), "CPUs 7 are held by claims but not online"),
        (range(8), (0, 1), "CPUs 0 are held by claims and reserved now"),
        (range(7), (2, 3), "CPUs 7 went up or down"),
        (range(9), (), "CPUs 8 went up or down"),
    ],
)
def test_a_changed_machine_is_told_with_its_cpus(online: range, held: tuple[int, ...], says: str | None) -> None:
    told = topology_changed(frozenset(range(8)), frozenset(online), snapshot(*held))
    assert told is None if says is None else told is not None and told.startswith(says)


def test_reserved_cpus_that_are_offline_are_named() -> None:
    told = reserved_offline(frozenset({0, 9}), lambda: frozenset(range(8)))
    assert told == "reserved CPUs 9 are not online; change reservedCPUs"
    assert reserved_offline(frozenset({0}), lambda: frozenset(range(8))) is None


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    assert unwritable([tmp_path]) is None
    told = unwritable([tmp_path, tmp_path / "gone"])
    assert told == f"{tmp_path / 'gone'} is missing or cannot be written to; mend or mount it"


def test_cpus_are_read_from_a_sysfs_tree(tmp_path: Path) -> None:
    folder = tmp_path / "devices/system/cpu"
    folder.mkdir(parents=True)
    (folder / "online").write_text("0-3,6\n")
    assert online_now(tmp_path) == frozenset({0, 1, 2, 3, 6})
    assert isolated(tmp_path) == frozenset()
    (folder / "isolated").write_text("2-3\n")
    assert isolated(tmp_path) == frozenset({2, 3})
