import json
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from driver import durable
from driver.cdi import CDI
from driver.durable import temporary
from driver.ledger.entry import Entry
from driver.names import cdi_file
from models import parse_cpuset

UID = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
ENTRY = Entry(uid=UID, cpuset=parse_cpuset("2-5,9"))
FILE = f"dra.k8s.io-cpu_claim-{UID}.json"

GO = {
    "cdiVersion": "0.8.0",
    "kind": "dra.k8s.io/cpu",
    "devices": [{"name": f"claim-{UID}", "containerEdits": {"env": ["A=b", f"DRA_CPUSET_{UID}=0-2,8"]}}],
}
"""As dra-driver-cpu writes it."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def cdi(tmp_path: Path) -> CDI:
    cdi = CDI(tmp_path / "run/cdi")
    cdi.open()
    return cdi


def test_a_claims_file_names_its_device_and_its_variable(cdi: CDI) -> None:
    cdi.write(ENTRY)
    assert json.loads((cdi.folder / FILE).read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": "dra.k8s.io/cpu",
        "devices": [{"name": f"claim-{UID}", "containerEdits": {"env": [f"DRA_CPUSET_{UID}=2-5,9"]}}],
    }
    assert names(cdi.folder) == [FILE]


def test_a_file_that_is_right_is_not_touched(cdi: CDI) -> None:
    cdi.write(ENTRY)
    before = (cdi.folder / FILE).stat()
    cdi.write(ENTRY)
    assert (cdi.folder / FILE).stat() == before


@pytest.mark.parametrize("content", [None, "", "{}", json.dumps(GO), "[" * 100_000, "x" * (1 << 21)])
def test_a_file_that_is_missing_or_wrong_is_seen_and_put_right(cdi: CDI, content: str | None) -> None:
    if content is not None:
        (cdi.folder / FILE).write_text(content)
    assert not cdi.stands(ENTRY)
    cdi.write(ENTRY)
    assert cdi.stands(ENTRY)
    assert not cdi.stands(ENTRY.model_copy(update={"cpuset": frozenset({1})}))


def test_a_link_or_a_pipe_in_the_files_place_is_replaced(cdi: CDI, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (cdi.folder / FILE).symlink_to(tmp_path / "other")
    cdi.write(ENTRY)
    assert cdi.stands(ENTRY)
    (cdi.folder / FILE).unlink()
    os.mkfifo(cdi.folder / FILE)
    cdi.write(ENTRY)
    assert cdi.stands(ENTRY)
    assert (tmp_path / "other").read_text() == "precious"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_has_the_temporary_name_is_neither_written_to_nor_waited_for(
    cdi: CDI, tmp_path: Path, kind: str
) -> None:
    other, name = tmp_path / "other", temporary(cdi.folder / FILE)
    other.write_text("precious")
    if kind == "link":
        name.symlink_to(other)
    else:
        os.mkfifo(name)
    cdi.write(ENTRY)
    assert cdi.stands(ENTRY)
    assert other.read_text() == "precious"
    assert not name.exists()


def test_the_folder_is_made_again_when_a_reboot_has_emptied_run(cdi: CDI) -> None:
    cdi.folder.rmdir()
    cdi.remove(UID)
    cdi.write(ENTRY)
    assert cdi.stands(ENTRY)


def test_removing_a_file_succeeds_whether_or_not_it_was_there(cdi: CDI) -> None:
    cdi.write(ENTRY)
    cdi.remove(UID)
    cdi.remove(UID)
    assert names(cdi.folder) == []


def test_no_runtime_takes_a_file_that_is_being_written_for_a_spec(
    cdi: CDI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runtimes read every file whose name ends in .json or .yaml, hidden ones too."""
    seen: list[list[str]] = []
    rename = Path.replace
    monkeypatch.setattr(Path, "replace", lambda old, new: (seen.append(names(cdi.folder)), rename(old, new)))
    cdi.write(ENTRY)
    assert [*seen, names(cdi.folder)] == [[f".{FILE}.new"], [FILE]]


def test_a_failed_write_leaves_the_former_file_and_no_other(cdi: CDI, monkeypatch: pytest.MonkeyPatch) -> None:
    cdi.write(ENTRY)

    def full(path: Path) -> BinaryIO:
        path.touch()
        return Path("/dev/full").open("wb")

    with monkeypatch.context() as patched:
        patched.setattr(durable, "_opened_anew", full)
        with pytest.raises(OSError, match="No space"):
            cdi.write(ENTRY.model_copy(update={"cpuset": frozenset({1})}))
    assert cdi.stands(ENTRY)
    assert names(cdi.folder) == [FILE]


def test_only_our_own_leftovers_are_removed_at_the_start(cdi: CDI) -> None:
    for name in (f".{FILE}.new", ".other.json.new", "nvidia.json"):
        (cdi.folder / name).write_text("")
    cdi.open()
    assert names(cdi.folder) == [".other.json.new", "nvidia.json"]


def test_claims_are_listed_oldest_first_and_files_of_others_are_not_claims(cdi: CDI) -> None:
    for age, uid in enumerate(["b", "a", "c"], 1):
        cdi.write(Entry(uid=uid, cpuset={age}))
        os.utime(cdi.folder / cdi_file(uid), (age, age))
    for name in ("dra.k8s.io-cpu_claim-..json", "dra.k8s.io-cpu_claim-.json", "dra.k8s.io-gpu_claim-x.json", "x"):
        (cdi.folder / name).write_text("")
    assert list(cdi.uids()) == ["b", "a", "c"]


def test_the_file_of_dra_driver_cpu_is_taken_over(cdi: CDI) -> None:
    (cdi.folder / FILE).write_text(json.dumps(GO, indent=2))
    assert cdi.adopt(UID) == Entry(uid=UID, cpuset=parse_cpuset("0-2,8"), adopted=True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        "7",
        json.dumps(GO).replace("0-2,8", ""),
        json.dumps(GO).replace("0-2,8", "2-0"),
        json.dumps(GO).replace("0-2,8", "0-99999999999999999999"),
        json.dumps(GO).replace("A=b", f"DRA_CPUSET_{UID}=3"),
        json.dumps(GO).replace(UID, "other"),
        json.dumps(GO) + " " * (1 << 21),
    ],
)
def test_a_file_that_names_no_cpus_is_left_alone_and_told(
    cdi: CDI, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (cdi.folder / FILE).write_text(content)
    assert cdi.adopt(UID) is None
    assert UID in caplog.text
    assert (cdi.folder / FILE).read_text() == content


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "a" * 64])
def test_no_path_is_made_of_what_is_no_uid(cdi: CDI, uid: str) -> None:
    with pytest.raises(ValueError, match="is no uid"):
        cdi.remove(uid)


def test_files_of_other_drivers_that_vanish_meanwhile_are_nobodys_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cdi = CDI(tmp_path)
    cdi.write(Entry(uid="mine", cpuset=frozenset({1})))
    there = list(tmp_path.iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([*there, tmp_path / "vendor.json"]))
    assert list(cdi.uids()) == ["mine"]
