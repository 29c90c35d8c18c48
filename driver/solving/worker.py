"""The solver's process: CP-SAT in one thread, warm, of limited size, polite to others, and never an orphan.

Run as ``python -m driver.solving.worker PARENT FD``. The first message on the socket is the machine; then
questions are answered one by one until the other end is closed.
"""

import gc
import logging
import sys
from multiprocessing.connection import Connection

from driver.logs import configure
from driver.processes import confine
from driver.solving.messages import MAX_BYTES, READY, BadInput, Question, Reply
from models import BadInputError, DefectError, Request, Topology
from solver.engine import solve
from solver.problem import Prepared

NICENESS = 10
ADDRESS_SPACE = 512 * 2**20
"""Bytes. Below the container's memory limit in what is resident: with ``memory.oom.group`` the kernel kills the
driver together with a child that is too big, so the child's own limit must bite first."""

WARM_UP = 0.2
"""Seconds of search. Code is loaded and memory is taken after that; the answer does not matter."""


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
    confine(parent, ADDRESS_SPACE, NICENESS)
    with Connection(socket) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
