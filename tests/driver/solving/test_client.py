"""``WorkerSolver`` with its real process, whatever becomes of that."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.solving import check as checking
from driver.solving import client, process
from driver.solving.check import check
from driver.solving.client import WorkerSolver
from models import BadInputError, Request
from solver.engine import solve
from tests.driver.recorder import Recorder
from topologies.load import load

MACHINE = load("socket:2 numa:2 l3:2 core:4 cpu:2")
FREE = MACHINE.online - {0, 1, 32, 33}
PATIENCE = 60.0


def wait_until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


def alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def running(time_limit=20.0, machine=MACHINE):
    recorder = Recorder()
    solver = WorkerSolver(machine, time_limit, recorder)
    solver.start()
    try:
        yield solver, recorder
    finally:
        solver.stop()


@contextmanager
def ready(**settings):
    with running(**settings) as (solver, recorder):
        wait_until(lambda: solver.pid is not None)
        yield solver, recorder


@pytest.fixture(scope="module")
def shared():
    with ready() as (solver, _):
        yield solver


@pytest.fixture
def faulty(monkeypatch):
    monkeypatch.setattr(process, "PROGRAM", "tests.driver.solving.faulty_worker")
    return lambda fault: monkeypatch.setenv("FAULT", fault)


def timeless(result):
    return result.model_copy(update={"build_ms": 0.0, "solve_ms": 0.0})


REQUESTS = {
    "packed": [Request(cpus=6)],
    "distributed": [Request(cpus=12, policy="distributed", numa_min="all")],
    "whole cores near a node": [Request(cpus=8, full_cores=True, near="16-23", strict={"near"})],
    "one thread a core within a socket": [Request(cpus=5, threads="spread", within=range(16, 32))],
    "two together": [Request(name="a", cpus=6), Request(name="b", cpus=10, policy="distributed")],
    "impossible": [Request(cpus=64)],
    "impossible together": [Request(name="a", cpus=40), Request(name="b", cpus=30)],
}


@pytest.mark.parametrize("requests", REQUESTS.values(), ids=REQUESTS)
def test_the_process_answers_as_solve_does_here(shared, requests):
    assert timeless(shared.solve(requests, FREE)) == timeless(solve(MACHINE, requests, free=FREE, time_limit=20))


def test_bad_input_comes_back_as_bad_input(shared):
    with pytest.raises(BadInputError) as here:
        solve(MACHINE, Request(cpus=2, near="eth7"), free=FREE)
    with pytest.raises(BadInputError) as there:
        shared.solve([Request(cpus=2, near="eth7")], FREE)
    assert (there.value.reason, there.value.place) == (here.value.reason, here.value.place)


def test_claims_held_in_the_document_do_not_hinder():
    machine = MACHINE.model_copy(update={"held": {"old": frozenset({5})}})
    with running(machine=machine) as (solver, _):
        assert solver.solve([Request(cpus=2)], FREE).allocations


def test_until_the_process_is_ready_greedy_answers_and_nobody_waits():
    with running() as (solver, recorder):
        assert solver.pid is None
        result = solver.solve([Request(cpus=6)], FREE)
    assert result.status == "feasible"
    assert result.engine == "greedy"
    assert "process is not ready" in result.notes[0]
    assert recorder.fallbacks == {"not_ready": 1}
    assert recorder.solvers == {"greedy": 1}


def test_a_stopped_process_is_killed_and_another_one_takes_over():
    with ready(time_limit=0.3) as (solver, recorder):
        first = solver.pid
        os.kill(first, signal.SIGSTOP)
        result = solver.solve([Request(cpus=6)], FREE)
        assert (result.engine, recorder.fallbacks) == ("greedy", {"timeout": 1})
        wait_until(lambda: solver.pid not in (None, first))
        assert not alive(first)


def test_a_process_that_is_killed_while_it_is_asked_is_a_crash_and_is_replaced():
    with ready() as (solver, recorder):
        first = solver.pid
        os.kill(first, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (first, signal.SIGKILL)).start()
        result = solver.solve([Request(cpus=6)], FREE)
        assert (result.engine, recorder.fallbacks) == ("greedy", {"crash": 1})
        wait_until(lambda: solver.pid not in (None, first))
        assert solver.solve([Request(cpus=6)], FREE).engine == "dp"


@pytest.mark.parametrize(
    ("fault", "why"),
    [("lie", "defect"), ("confess", "defect"), ("babble", "defect"), ("eat", "crash"), ("quit", "crash")],
)
def test_what_a_faulty_process_does_ends_in_greedys_answer(faulty, fault, why):
    requests = [Request(name="a", cpus=6), Request(name="b", cpus=6)]
    faulty(fault)
    with ready() as (solver, recorder):
        result = solver.solve(requests, FREE)
    greedy = solve(MACHINE, requests, free=FREE, engine="greedy")
    assert result.allocations == greedy.allocations
    assert recorder.fallbacks == {why: 1}


def test_an_answer_that_comes_in_drops_is_not_waited_for(faulty):
    faulty("drip")
    with ready(time_limit=0.5) as (solver, recorder):
        assert solver.solve([Request(cpus=6)], FREE).engine == "greedy"
    assert recorder.fallbacks == {"timeout": 1}


def test_greedy_explains_a_clash_only_briefly_where_others_wait_for_the_interpreter(monkeypatch):
    """An explanation of 32 requests takes a second if it may."""
    limits = []

    def record(*args, time_limit, **how):
        limits.append(time_limit)
        return solve(*args, time_limit=time_limit, **how)

    monkeypatch.setattr(client, "solve", record)
    monkeypatch.setattr(checking, "solve", record)
    requests = [Request(name=f"r{number}", cpus=6) for number in range(11)]
    solver = WorkerSolver(MACHINE, 0.0, Recorder())
    result = solver.solve(requests, FREE)
    check(solver._prepared, requests, FREE, result)
    assert result.status == "infeasible"
    assert limits == [client.EXPLAINING, 0.0]


def test_a_question_needs_no_thread(shared, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert shared.solve([Request(cpus=6)], FREE).engine == "dp"


def test_a_process_that_never_gets_ready_leaves_greedy_at_work(faulty):
    faulty("never ready")
    with running() as (solver, recorder):
        time.sleep(0.5)
        assert solver.solve([Request(cpus=6)], FREE).engine == "greedy"
    assert recorder.fallbacks == {"not_ready": 1}


def test_twenty_callers_at_once_each_get_their_own_right_answer():
    requests = [[Request(cpus=1 + i, policy=("packed", "distributed")[i % 2])] for i in range(20)]
    with ready() as (solver, recorder), ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda each: solver.solve(each, FREE), requests))
    for each, result in zip(requests, found, strict=True):
        assert timeless(result) == timeless(solve(MACHINE, each, free=FREE, time_limit=20))
    assert not recorder.fallbacks


def test_callers_whose_deadline_passes_while_they_wait_for_their_turn_get_greedys_answer():
    with ready(time_limit=0.3) as (solver, recorder), ThreadPoolExecutor(8) as pool:
        os.kill(solver.pid, signal.SIGSTOP)
        found = list(pool.map(lambda _: solver.solve([Request(cpus=6)], FREE), range(8)))
    assert {result.engine for result in found} == {"greedy"}
    assert recorder.fallbacks["timeout"] >= 1
    assert recorder.fallbacks.total() == 8


def test_without_time_greedy_answers_without_a_process_and_that_is_no_fallback():
    with running(time_limit=0) as (solver, recorder):
        assert solver.solve([Request(cpus=6)], FREE).engine == "greedy"
        assert solver.pid is None
    assert not recorder.fallbacks


def test_stop_ends_the_process():
    with ready() as (solver, _):
        pid = solver.pid
    assert not alive(pid)


def test_the_process_is_nice_small_single_threaded_and_has_none_of_our_files(shared):
    folder = Path(f"/proc/{shared.pid}")
    limits = folder.joinpath("limits").read_text()
    assert f"Max address space         {512 * 2**20}" in limits
    assert os.getpriority(os.PRIO_PROCESS, shared.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert len(list(folder.joinpath("task").iterdir())) == 1
    assert sorted(int(fd.name) for fd in folder.joinpath("fd").iterdir())[:3] == [0, 1, 2]
    assert len(list(folder.joinpath("fd").iterdir())) == 4


PARENT = """
import sys, time
from driver.solving.client import WorkerSolver
from tests.driver.recorder import Recorder
from topologies.load import load
solver = WorkerSolver(load("core:4 cpu:2"), 2.0, Recorder())
solver.start()
while solver.pid is None:
    time.sleep(0.02)
print(solver.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_the_process_dies_with_its_parent_even_if_it_is_stopped(stopped):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
    wait_until(lambda: not alive(pid))
