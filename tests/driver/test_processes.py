"""The limits that a child process sets itself, and its end."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from driver.processes import Child

PATIENCE = 30.0
"""Seconds to wait for an end that comes at once."""

LIMIT = 512 * 2**20


def confined(script, parent=None):
    head = f"from driver.processes import confine; confine({parent or os.getpid()}, {LIMIT}, 10)\n"
    return subprocess.run([sys.executable, "-c", head + script], capture_output=True, text=True, check=False)


def test_more_memory_than_the_limit_is_not_to_be_had():
    assert "MemoryError" in confined(f"bytearray({LIMIT})").stderr
    assert confined(f"bytearray({LIMIT // 4})").returncode == 0


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    ended = confined("print('went on')", parent=1)
    assert (ended.stdout, ended.returncode) == ("", 1)


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child("tests.driver.talker")
    yield made
    made.kill()
    made.wait()
    made.close()


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_messages_of_any_size_go_there_and_back(child: Child, size: int) -> None:
    message = os.urandom(size)
    child.send(message, PATIENCE)
    assert child.poll(PATIENCE)
    assert child.receive(size, PATIENCE) == message


def test_a_child_that_does_not_read_or_sends_in_drops_is_not_waited_for(child: Child) -> None:
    child.send(b"drip")
    assert child.poll(PATIENCE)
    with pytest.raises(BlockingIOError):
        child.receive(1000, 0.3)
    with pytest.raises(BlockingIOError):
        child.send(bytes(10_000_000), 0.3)


@pytest.mark.parametrize(
    ("said", "error"), [(b"-1", OSError), (b"1000000", OSError), (b"end", EOFError), (b"half", EOFError)]
)
def test_what_is_no_message_is_an_error(child: Child, said: bytes, error: type[Exception]) -> None:
    child.send(said)
    assert child.poll(PATIENCE)
    with pytest.raises(error):
        child.receive(1000, PATIENCE)


def test_nobody_waits_for_a_child_that_says_nothing(child: Child) -> None:
    child.send(b"sleep")
    assert not child.poll(0.1)


DRIVER = """
import os, signal, sys
from driver.solving.process import WorkerProcess
from topologies.load import load
worker = WorkerProcess(load("core:2"))
os.kill(worker.pid, signal.SIGSTOP)
os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
print(worker.pid, flush=True)
sys.stdin.read()
"""


def test_a_process_that_was_stopped_before_it_set_its_limits_ends_with_its_driver():
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        pid = int(driver.stdout.readline())
        handle = os.pidfd_open(pid)
        try:
            assert ") T " in Path(f"/proc/{pid}/stat").read_text()
            driver.kill()
            assert select.select([handle], [], [], PATIENCE)[0], "the stopped process lives on"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
