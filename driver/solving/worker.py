"""The solver's process: CP-SAT in one thread, warm, of limited size, polite to others, and never an orphan.

Run as ``python -m driver.solving.worker PARENT FD``. The first message on the socket is the machine; then
questions are answered one by one until the other end is closed.
"""

import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection

from driver.logs import configure
from driver.solving.messages import MAX_BYTES, READY, BadInput, Question, Reply
from models import BadInputError, DefectError, Request, Topology
from solver.engine import solve
from solver.problem import Prepared

log = logging.getLogger(__name__)

NICENESS = 10
ADDRESS_SPACE = 512 * 2**20
"""Bytes. Below the container's memory limit in what is resident: with ``memory.oom.group`` the kernel kills the
driver together with a child that is too big, so the child's own limit must bite first."""

ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
"""Keeps numerical libraries from a thread for each CPU of the node, and from an arena for each thread."""

WARM_UP = 0.2
"""Seconds of search. Code is loaded and memory is taken after that; the answer does not matter."""

_PR_SET_PDEATHSIG = 1
"""Of ``prctl(2)``."""


def confine(parent: int) -> None:
    """Be nice, stay small, end with the parent. Ends at once if the parent has ended before that was set."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        log.warning("the end of the driver will be seen only between two answers: prctl was refused")
    if os.getppid() != parent:
        raise SystemExit(f"process {parent} has ended")


def serve(connection: Connection) -> None:
    """Answer until the other end is closed."""
    prepared = Prepared(Topology.model_validate_json(connection.recv_bytes(MAX_BYTES)))
    warm_up(prepared)
    connection.send_bytes(READY)
    while True:
        try:
            question = Question.model_validate_json(connection.recv_bytes(MAX_BYTES))
        except (EOFError, ConnectionError):
            return
        connection.send_bytes(answer(prepared, question).model_dump_json().encode())


def answer(prepared: Prepared, question: Question) -> Reply:
    """What the solver says. All but bad input and defects ends the process, and a fresh one takes over."""
    try:
        return Reply(result=solve(prepared, question.requests, free=question.free, time_limit=question.time_limit))
    except BadInputError as error:
        return Reply(bad_input=BadInput(reason=error.reason, place=error.place, file=error.file))
    except DefectError as error:
        return Reply(defect=str(error))


def warm_up(prepared: Prepared) -> None:
    """Load CP-SAT and the tables, and fill their caches, before the first pod waits for them."""
    pair = [Request(name="a", cpus=1), Request(name="b", cpus=1)]
    solve(prepared, Request(cpus=1))
    solve(prepared, pair, engine="cpsat", time_limit=WARM_UP)
    gc.freeze()


def main() -> None:
    """Run it."""
    configure(logging.StreamHandler())
    parent, socket = map(int, sys.argv[1:])
    confine(parent)
    with Connection(socket) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
