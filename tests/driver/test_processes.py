"""The limits that a child process sets itself, and its end."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

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
