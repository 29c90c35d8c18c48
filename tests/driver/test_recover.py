import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.cdi import CDI
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.ledger.files import Files
from driver.names import cdi_file, cdi_name, variable
from driver.node import NodeCPUs
from driver.recover import recover, repair
from models import parse_cpuset

NODE = NodeCPUs(frozenset(range(16)), reserved=frozenset({0}))


def go_file(folder: Path, uid: str, cpus: str) -> None:
    device = {"name": cdi_name(uid), "containerEdits": {"env": [f"{variable(uid)}={cpus}"]}}
    folder.mkdir(exist_ok=True)
    content = {"cdiVersion": "0.8.0", "kind": "dra.k8s.io/cpu", "devices": [device]}
    (folder / cdi_file(uid)).write_text(json.dumps(content))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], tuple[Ledger, CDI]]]:
    """What a start of the driver finds, after the last one was killed."""
    opened: list[Ledger] = []

    def start() -> tuple[Ledger, CDI]:
        opened.append(Ledger.open(NODE, Files(tmp_path / "ledger")))
        cdi = CDI(tmp_path / "cdi")
        recover(opened[-1], cdi)
        return opened[-1], cdi

    yield start
    for each in opened:
        each.close()


def test_claims_get_their_cdi_files_again_after_a_reboot(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    entries = [Entry(uid="a", cpuset={1, 2}), Entry(uid="b", cpuset={3})]
    Files(tmp_path / "ledger").read()
    for entry in entries:
        Files(tmp_path / "ledger").write(entry)
    go_file(tmp_path / "cdi", "b", "4-9")
    ledger, cdi = start()
    assert all(cdi.stands(entry) for entry in entries)
    assert ledger.snapshot.held == {1, 2, 3}


def test_claims_of_dra_driver_cpu_go_on_and_are_in_the_ledger_from_then_on(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    go_file(tmp_path / "cdi", "a", "0-3")
    for _ in range(2):
        ledger, cdi = start()
        assert ledger.snapshot.entries == {"a": Entry(uid="a", cpuset=parse_cpuset("0-3"), adopted=True)}
        assert cdi.stands(ledger.snapshot.entries["a"])
    assert Files(tmp_path / "ledger").read().entries == ledger.snapshot.entries


def test_no_cpu_is_held_twice_though_cdi_files_name_it_twice(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], caplog: pytest.LogCaptureFixture
) -> None:
    Files(tmp_path / "ledger").read()
    Files(tmp_path / "ledger").write(Entry(uid="ours", cpuset={1, 2}))
    go_file(tmp_path / "cdi", "theirs", "2-5")
    ledger, cdi = start()
    assert list(ledger.snapshot.entries) == ["ours"]
    assert ledger.snapshot.held == parse_cpuset("1-5")
    assert "claim theirs has CPUs 2-5 by its CDI file, but CPUs 2 are held by claim ours" in caplog.text
    assert list(cdi.uids()) == ["theirs", "ours"]
    ledger.forget("theirs")
    assert ledger.snapshot.held == {1, 2}


def test_a_claim_whose_ledger_file_is_torn_goes_on_by_its_cdi_file(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    Files(tmp_path / "ledger").read()
    (tmp_path / "ledger/a.json").write_text('{"uid": "a", "cpuset": "1-')
    go_file(tmp_path / "cdi", "a", "1-4")
    ledger, _ = start()
    assert ledger.snapshot.entries["a"].cpuset == parse_cpuset("1-4")
    assert ledger.unsure() is None


def test_a_cdi_file_that_cannot_be_read_is_left_and_keeps_nobody_from_starting(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    go_file(tmp_path / "cdi", "a", "4-2")
    ledger, cdi = start()
    assert ledger.snapshot.entries == {}
    assert list(cdi.uids()) == ["a"]


def test_a_cdi_folder_that_cannot_be_used_is_an_os_error(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    (tmp_path / "cdi").write_text("")
    with pytest.raises(OSError, match="cdi"):
        start()


def test_a_full_disk_keeps_nobody_from_starting(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Files(tmp_path / "ledger").read()
    Files(tmp_path / "ledger").write(Entry(uid="a", cpuset={1, 2}))
    go_file(tmp_path / "cdi", "b", "4-5")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    ledger, _ = start()
    assert ledger.snapshot.held == {1, 2, 4, 5}
    assert not ledger.stands("b")


@pytest.mark.parametrize("folders", [["ledger"], ["cdi"], ["ledger", "cdi"]])
def test_files_that_somebody_removes_while_we_run_are_written_again(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], folders: list[str]
) -> None:
    ledger, cdi = start()
    kept = Entry(uid="a", cpuset={1, 2}, pods={"pod-1"})
    ledger.reserve(kept)
    ledger.write("a")
    cdi.write(kept)
    for name in folders:
        shutil.rmtree(tmp_path / name)
        (tmp_path / name).mkdir()
    repair(ledger, cdi, lambda _: False)
    again, cdi = start()
    assert again.snapshot.entries == {"a": kept}
    assert cdi.stands(kept)


@pytest.mark.parametrize("content", ["", "{}", '{"uid": "a", "cpuset": "1-'])
def test_a_ledger_file_that_somebody_spoils_while_we_run_is_written_again(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], content: str
) -> None:
    ledger, cdi = start()
    ledger.reserve(Entry(uid="a", cpuset={1, 2}))
    ledger.write("a")
    (tmp_path / "ledger/a.json").write_text(content)
    assert not ledger.stands("a")
    repair(ledger, cdi, lambda _: False)
    assert ledger.stands("a")


def test_what_somebody_works_on_and_what_cannot_be_written_is_left_for_later(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    ledger, cdi = start()
    for uid, cpu in (("a", 1), ("b", 2), ("c", 3)):
        ledger.reserve(Entry(uid=uid, cpuset={cpu}))
    (tmp_path / "ledger/b.json").mkdir()
    with ledger.locks.of("a"):
        repair(ledger, cdi, lambda _: False)
    assert [ledger.stands(uid) for uid in "abc"] == [False, False, True]
    assert ledger.snapshot.held == {1, 2, 3}


def test_cpus_of_a_claim_that_is_none_of_ours_are_free_once_its_file_and_its_container_are_gone(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]]
) -> None:
    Files(tmp_path / "ledger").read()
    Files(tmp_path / "ledger").write(Entry(uid="ours", cpuset={1, 2}))
    go_file(tmp_path / "cdi", "theirs", "2-5")
    ledger, cdi = start()
    repair(ledger, cdi, lambda _: False)
    assert ledger.snapshot.held == parse_cpuset("1-5"), "its file is there"
    (tmp_path / "cdi" / cdi_file("theirs")).unlink()
    repair(ledger, cdi, lambda uid: uid == "theirs")
    assert ledger.snapshot.held == parse_cpuset("1-5"), "a container carries it"
    repair(ledger, cdi, lambda _: False)
    assert ledger.snapshot.held == {1, 2}


def test_a_claim_that_is_prepared_while_files_are_repaired_keeps_its_cpus(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver's claim, whose CPUs are withheld, is gone; then the kubelet prepares one of the same uid."""
    Files(tmp_path / "ledger").read()
    Files(tmp_path / "ledger").write(Entry(uid="ours", cpuset={1, 2}))
    go_file(tmp_path / "cdi", "theirs", "2-5")
    ledger, cdi = start()
    (tmp_path / "cdi" / cdi_file("theirs")).unlink()

    @contextmanager
    def after_a_prepare(uid: str, timeout: float = -1) -> Iterator[None]:
        if uid == "theirs":
            monkeypatch.setattr(ledger.locks, "of", of)
            ledger.reserve(entry)
            ledger.write(uid)
            cdi.write(entry)
        with of(uid, timeout):
            yield

    entry, of = Entry(uid="theirs", cpuset={8}), ledger.locks.of
    monkeypatch.setattr(ledger.locks, "of", after_a_prepare)
    repair(ledger, cdi, lambda _: False)
    assert ledger.snapshot.entries["theirs"] == entry
    assert Files(tmp_path / "ledger").read().entries == ledger.snapshot.entries


def test_a_claim_of_ours_keeps_its_cpus_when_its_file_cannot_be_written_and_others_were_withheld(
    tmp_path: Path, start: Callable[[], tuple[Ledger, CDI]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, cdi = start()
    ledger.withhold("a", parse_cpuset("2-5"))
    ledger.reserve(Entry(uid="a", cpuset={8}))

    def full(entry: Entry) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cdi, "write", full)
    repair(ledger, cdi, lambda _: False)
    assert ledger.snapshot.held == {8}
