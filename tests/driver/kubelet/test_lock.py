import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from driver.kubelet.lock import NodeLock
from models import BadInputError

HOLDER = """
import sys, time
from pathlib import Path
from driver.kubelet.lock import NodeLock
lock = NodeLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_driver_waits_until_the_first_one_lets_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, got = (
        NodeLock(tmp_path / "plugins/lock"),
        NodeLock(tmp_path / "plugins/lock"),
        threading.Event(),
    )
    assert first.acquire()

    def wait() -> None:
        assert second.acquire()
        got.set()

    caplog.set_level("INFO")
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not got.wait(0.5)
    assert caplog.text.count("another driver serves this node") == 1
    first.release()
    assert got.wait(60)
    waiting.join()
    second.release()


def test_waiting_can_be_called_off(tmp_path: Path) -> None:
    first, second, stopped = NodeLock(tmp_path / "lock"), NodeLock(tmp_path / "lock"), threading.Event()
    assert first.acquire()
    stopped.set()
    assert not second.acquire(stopped)
    first.release()
    assert NodeLock(tmp_path / "lock").acquire(stopped)


def test_a_driver_that_is_killed_lets_go_and_its_children_do_not_hold_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        stopped = threading.Event()
        threading.Timer(0.5, stopped.set).start()
        assert not NodeLock(tmp_path / "lock").acquire(stopped)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(60)
    assert NodeLock(tmp_path / "lock").acquire()


def test_the_lock_is_not_inherited_by_programs_that_the_driver_starts(tmp_path: Path) -> None:
    lock = NodeLock(tmp_path / "lock")
    assert lock.acquire()
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        lock.release()
        assert NodeLock(tmp_path / "lock").acquire()
        child.kill()


def test_who_clears_the_folder_out_lets_no_other_driver_in(tmp_path: Path) -> None:
    lock, stopped = NodeLock(tmp_path / "plugin"), threading.Event()
    assert lock.acquire()
    for path in (tmp_path / "plugin").iterdir():
        path.unlink()
    stopped.set()
    assert not NodeLock(tmp_path / "plugin").acquire(stopped)


@pytest.mark.parametrize("place", ["file/lock", "file", "link", "loop"])
def test_a_lock_that_cannot_be_opened_is_one_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadInputError, match="the folder to be locked cannot be opened"):
        NodeLock(tmp_path / place).acquire()
