"""The limits that the solver's process sets itself, and its end."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from threading import Thread

from driver.solving import worker
from driver.solving.messages import READY, Question, Reply
from models import Request
from topologies.load import load

PATIENCE = 30.0
"""Seconds to wait for an end that comes at once."""

MACHINE = load("socket:2 core:4 cpu:2")


def confined(script, parent=None):
    head = f"from driver.solving.worker import confine; confine({parent or os.getpid()})\n"
    return subprocess.run([sys.executable, "-c", head + script], capture_output=True, text=True, check=False)


def test_more_memory_than_the_limit_is_not_to_be_had():
    assert "MemoryError" in confined(f"bytearray({worker.ADDRESS_SPACE})").stderr
    assert confined(f"bytearray({worker.ADDRESS_SPACE // 4})").returncode == 0


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


def test_questions_are_answered_until_the_other_end_is_closed():
    ours, theirs = Pipe()
    thread = Thread(target=worker.serve, args=(theirs,))
    thread.start()
    ours.send_bytes(MACHINE.model_dump_json(by_alias=True).encode())
    assert ours.recv_bytes() == READY
    for cpus in (2, 4):
        question = Question(requests=(Request(cpus=cpus),), free=MACHINE.online, time_limit=20)
        ours.send_bytes(question.model_dump_json().encode())
        reply = Reply.model_validate_json(ours.recv_bytes())
        assert len(reply.result.allocations[0].cpuset) == cpus
    ours.close()
    thread.join()
