import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.ledger.entry import Entry, Grant, Owner
from driver.ledger.files import LARGEST, Aside, Files, Read
from models import BadInputError, format_cpuset

UID = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
ENTRY = Entry(
    uid=UID,
    namespace="default",
    name="cpus",
    fingerprint="f" * 64,
    cpuset=frozenset({4, 5, 6, 12}),
    mems=frozenset({0}),
    grants=(Grant(request="r/sub", pool="node-1", device="cpudevmachine", share_id="s", cpus=4),),
    pods=frozenset({"pod-1", "pod-2"}),
    owner=Owner(pod_uid="pod-1", container="main"),
)


def put(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def opened(handle: int) -> Path:
    return Path(f"/proc/self/fd/{handle}").readlink()


def aside(read: Read) -> Aside:
    (found,) = read.aside
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Files(tmp_path / "ledger").read()
    return tmp_path / "ledger"


def test_an_entry_is_read_as_it_was_written(folder: Path) -> None:
    files = Files(folder)
    files.write(ENTRY)
    assert Files(folder).read() == Read({UID: ENTRY})
    files.write(changed := ENTRY.model_copy(update={"owner": None}))
    assert Files(folder).read().entries == {UID: changed}
    files.remove(UID)
    files.remove(UID)
    assert Files(folder).read() == Read()
    assert [path.name for path in folder.iterdir()] == ["quarantine"]


def test_the_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    flushed: list[Path] = []
    files = Files(tmp_path / "a/b/ledger", lambda handle: flushed.append(opened(handle)))
    assert files.read() == Read()
    assert flushed == [tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/ledger"]


def test_file_and_folder_are_flushed_before_a_write_counts(folder: Path) -> None:
    flushed: list[Path] = []
    Files(folder, lambda handle: flushed.append(opened(handle))).write(ENTRY)
    assert flushed == [folder / f".{UID}.json.new", folder]


@pytest.mark.parametrize(
    ("name", "content", "why", "cpus"),
    [
        (f"{UID}.json", ENTRY.model_dump_json()[:-20], "is torn", {4, 5, 6, 12}),
        (f"{UID}.json", '{"cpuset": "4-6,12-', "", {4, 5, 6, 12}),
        (f"{UID}.json", '{"cpuset": "4-6,1', "", {4, 5, 6, 1}),
        (f"{UID}.json", "", "", set()),
        (f"{UID}.json", b"\0" * 512, "is torn", set()),
        (f"{UID}.json", b"\xff\xfe" + b'"cpuset": "3"', "", {3}),
        (f"{UID}.json", "[" * 100_000, "nested too deeply", set()),
        (f"{UID}.json", '{"cpuset": "99999999999999-4,7"}', "", {7}),
        (f"{UID}.json", ENTRY.model_dump_json().replace("LedgerEntry", "Pod"), "kind", {4, 5, 6, 12}),
        (f"{UID}.json", ENTRY.model_dump_json().replace("4-6,12", ""), "no CPUs", set()),
        (f"{UID}.json", ENTRY.model_dump_json()[:-1] + ', "x": 1}', "unknown key", {4, 5, 6, 12}),
        (f"{UID}.json", ENTRY.model_dump_json() + " " * LARGEST, "larger than", {4, 5, 6, 12}),
        ("other.json", ENTRY.model_dump_json(), "of another claim", {4, 5, 6, 12}),
        (f"{UID}.json.bak", ENTRY.model_dump_json(), "name", {4, 5, 6, 12}),
        ("-x.json", ENTRY.model_dump_json(), "name", {4, 5, 6, 12}),
        ("notes.txt", "CPUs 1-3 are mine", "name", set()),
    ],
)
def test_a_file_that_is_no_entry_is_set_aside_and_the_cpus_that_it_names_are_known(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes | str, why: str, cpus: set[int]
) -> None:
    put(folder, name, content)
    found = Files(folder).read()
    assert found.entries == {}
    assert aside(found).cpus == cpus
    assert why in aside(found).reason
    assert aside(found).file == folder / "quarantine" / name
    assert str(folder / "quarantine" / name) in caplog.text
    assert "remove it when no pod needs it" in caplog.text
    again = aside(Files(folder).read())
    assert (again.cpus, again.whole, again.file) == (cpus, aside(found).whole, aside(found).file)
    aside(found).file.unlink()
    assert Files(folder).read() == Read()


@given(cut=st.integers(0, len(ENTRY.model_dump_json(indent=1)) - 1))
def test_wherever_a_file_is_torn_its_cpus_are_known_whole_or_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    put(folder, f"{UID}.json", ENTRY.model_dump_json(indent=1)[:cut])
    found = aside(Files(folder).read())
    assert found.uid == UID
    assert found.cpus == ENTRY.cpuset or not found.whole


def test_a_pipe_a_link_and_a_folder_neither_stop_nor_mislead_the_reader(folder: Path) -> None:
    os.mkfifo(folder / f"{UID}.json")
    (folder / "a.json").symlink_to("/etc/passwd")
    (folder / "lost+found").mkdir()
    found = Files(folder).read()
    assert sorted(each.file.name for each in found.aside) == [f"{UID}.json", "a.json"]
    assert (folder / "lost+found").is_dir()


def test_files_of_one_name_do_not_replace_each_other_in_quarantine(folder: Path) -> None:
    for cpu in range(3):
        put(folder, f"{UID}.json", f'{{"cpuset": "{cpu}"')
        Files(folder).read()
    found = Files(folder).read().aside
    assert [sorted(each.cpus) for each in found] == [[0], [1], [2]]
    assert {each.uid for each in found} == {UID}


def test_a_quarantine_that_nobody_looks_after_takes_any_number_of_files(folder: Path) -> None:
    for number in range(1100):
        put(folder / "quarantine", f"{UID}.json{f'.{number}' if number else ''}", "{}")
    put(folder, f"{UID}.json", '{"cpuset": "3"')
    assert folder / f"quarantine/{UID}.json.1100" in {each.file for each in Files(folder).read().aside}


def test_of_two_claims_with_the_same_cpu_the_older_file_counts(folder: Path) -> None:
    files = Files(folder)
    files.write(ENTRY.model_copy(update={"uid": "b", "cpuset": frozenset({1, 2})}))
    files.write(ENTRY.model_copy(update={"uid": "a", "cpuset": frozenset({2, 3})}))
    os.utime(folder / "b.json", (1, 1))
    found = files.read()
    assert list(found.entries) == ["b"]
    assert (aside(found).uid, aside(found).cpus) == ("a", {2, 3})


def test_leftovers_of_a_kill_are_removed_and_not_taken_for_entries(folder: Path) -> None:
    put(folder, f".{UID}.json.new", ENTRY.model_dump_json())
    assert Files(folder).read() == Read()
    assert not (folder / f".{UID}.json.new").exists()


def test_a_write_that_fails_leaves_the_former_file_and_nothing_else(folder: Path) -> None:
    Files(folder).write(ENTRY)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        Files(folder, full).write(ENTRY.model_copy(update={"cpuset": frozenset({9})}))
    assert Files(folder).read().entries == {UID: ENTRY}
    assert sorted(path.name for path in folder.iterdir()) == [f"{UID}.json", "quarantine"]


def test_a_ledger_that_cannot_be_changed_is_read_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Files(folder).write(ENTRY)
    put(folder, "torn.json", '{"cpuset": "9"')
    put(folder, ".b.json.new", "")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    found = Files(folder).read()
    assert found.entries == {UID: ENTRY}
    assert (aside(found).file, aside(found).cpus) == (folder / "torn.json", {9})
    assert caplog.text.count("Read-only file system") == 2


def test_a_ledger_that_is_no_folder_is_one_error(tmp_path: Path) -> None:
    put(tmp_path, "ledger", "")
    with pytest.raises(BadInputError, match="the ledger cannot be read: Not a directory"):
        Files(tmp_path / "ledger").read()


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "a\0", "-a", "ä", "a" * 64])
def test_nothing_is_written_or_removed_under_a_name_that_is_no_uid(folder: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="is no uid"):
        Files(folder).write(ENTRY.model_copy(update={"uid": uid}))
    with pytest.raises(ValueError, match="is no uid"):
        Files(folder).remove(uid)


def test_the_largest_claim_that_can_be_written_can_be_read(folder: Path) -> None:
    every_other = frozenset(range(0, 65_536, 2))
    largest = ENTRY.model_copy(update={"cpuset": every_other, "mems": every_other})
    Files(folder).write(largest)
    assert Files(folder).read().entries == {UID: largest}


def test_files_are_json_with_cpus_as_kernel_lists(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Files(folder).write(ENTRY)
    document = json.loads((folder / f"{UID}.json").read_text())
    assert document["cpuset"] == format_cpuset(ENTRY.cpuset)
    assert (document["api_version"], document["kind"], document["uid"]) == ("cpusat/v1", "LedgerEntry", UID)
    assert caplog.text == ""


OF_0_1_0 = """{
 "api_version": "cpusat/v1",
 "kind": "LedgerEntry",
 "uid": "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11",
 "namespace": "default",
 "name": "web",
 "fingerprint": "f1",
 "cpuset": "2-5",
 "mems": "",
 "grants": [
  {"request": "r", "pool": "node-1", "device": "cpudevmachine", "share_id": null, "cpus": 4}
 ],
 "pods": ["pod-1"],
 "owner": {"pod_uid": "pod-1", "container": "main"},
 "allocations": [],
 "engine": "greedy",
 "adopted": false
}
"""
"""As version 0.1.0 wrote it."""


def test_an_entry_that_version_0_1_0_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    uid = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
    (tmp_path / f"{uid}.json").write_text(OF_0_1_0)
    found = Files(tmp_path).read()
    assert found.aside == ()
    assert found.entries[uid].cpuset == {2, 3, 4, 5}
    assert found.entries[uid].carriers == ["pod-1"]


def test_an_entry_of_a_later_version_is_set_aside_and_its_cpus_are_known(tmp_path: Path) -> None:
    """So a driver that is taken back to an earlier version gives nobody the CPUs of its claims."""
    uid = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
    later = {**json.loads(OF_0_1_0), "of_a_later_version": {"x": 1}}
    (tmp_path / f"{uid}.json").write_text(json.dumps(later))
    (aside,) = Files(tmp_path).read().aside
    assert (aside.uid, aside.cpus, aside.whole) == (uid, {2, 3, 4, 5}, True)


def test_equal_entries_are_equal_files_in_whatever_order_their_pods_were_told(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.read()
    pods = [f"pod-{number}" for number in range(20)]
    files.write(Entry(uid="a", cpuset="1", pods=frozenset(pods)))
    assert json.loads((tmp_path / "a.json").read_text())["pods"] == sorted(pods)
