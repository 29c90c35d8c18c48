"""Temporary folders: gone when they are done with, and at the next start if their maker was killed."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from driver import scratch as module
from driver.scratch import scratch

PREFIX = "cpusat-test-"

HOLDER = """
import sys, tempfile
from driver.scratch import scratch
tempfile.tempdir = sys.argv[1]
with scratch(sys.argv[2]) as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def holder(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder, and that folder."""
    command = [sys.executable, "-c", HOLDER, str(temporary), PREFIX]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_is_gone_afterwards_even_after_an_error(temporary: Path) -> None:
    with suppress(ZeroDivisionError), scratch(PREFIX) as folder:
        (folder / "file").write_text("")
        assert folder.parent == temporary
        raise ZeroDivisionError
    assert not list(temporary.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(temporary: Path) -> None:
    (temporary / "other").mkdir()
    (temporary / f"{PREFIX}file").write_text("")
    (temporary / f"{PREFIX}link").symlink_to(temporary / "other")
    with holder(temporary) as (process, left):
        process.kill()
        process.wait()
    assert left.is_dir()
    with scratch(PREFIX):
        assert not left.exists()
    assert {each.name for each in temporary.iterdir()} == {"other", f"{PREFIX}file", f"{PREFIX}link"}


def test_a_folder_in_use_stays(temporary: Path) -> None:
    with holder(temporary) as (_, folder):
        with scratch(PREFIX) as other:
            assert other != folder
        assert (folder / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_folders_of_other_users_stay(temporary: Path) -> None:
    foreign = temporary / f"{PREFIX}foreign"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)
    with scratch(PREFIX):
        pass
    assert foreign.is_dir()


@pytest.mark.parametrize("when", ["before it is opened", "before it is locked", "not yet"])
def test_a_folder_that_was_taken_for_a_leftover_before_it_was_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """What happens if a process looks for leftovers just after the folder was made."""
    tries: list[Path] = []
    hold, lock = module._hold, fcntl.flock

    def late_hold(folder: Path) -> int | None:
        tries.append(folder)
        if len(tries) == 1 and when == "before it is opened":
            folder.rmdir()
        return hold(folder)

    def late_lock(descriptor: int, operation: int) -> None:
        if len(tries) == 1 and when == "before it is locked":
            tries[0].rmdir()
        if len(tries) == 1 and when == "not yet":
            raise BlockingIOError
        lock(descriptor, operation)

    monkeypatch.setattr(module, "_hold", late_hold)
    monkeypatch.setattr(fcntl, "flock", late_lock)
    with scratch(PREFIX) as folder:
        assert len(tries) == 2
        assert folder.is_dir()
