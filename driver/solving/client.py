"""``WorkerSolver``: CP-SAT's answer from a process of its own, greedy's from this one when that fails."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from driver.ports import Observer
from driver.solving.check import check
from driver.solving.messages import Question, Reply
from driver.solving.process import WorkerProcess
from models import DefectError, Request, Result, Topology
from solver.engine import solve
from solver.problem import Prepared

log = logging.getLogger(__name__)

Why = Literal["not_ready", "timeout", "crash", "defect"]

GRACE = 0.5
"""Seconds beyond the deadline in which an answer may still come: ``solve`` overruns by 0.1 at most, and the
process is nice on a busy node."""

FIRST_PAUSE, LONGEST_PAUSE, HEALTHY = 0.1, 30.0, 60.0
"""Seconds before another process is started, doubled up to the second unless the last one lived for the third."""

EXPLAINING = 0.1
"""Seconds that greedy may take in this process to explain why nothing fits: others wait for the interpreter."""

STANDS_IN = "greedy stands in for CP-SAT"


class NoAnswerError(Exception):
    """CP-SAT's process has no usable answer."""

    def __init__(self, why: Why, message: str) -> None:
        self.why, self.message = why, message
        super().__init__(f"{why}: {message}")


class WorkerSolver:
    """Implements ``driver.ports.Solver``. Safe to use from any thread; they take turns.

    ``time_limit``: seconds for an answer, including the wait for one's turn. With 0 every answer is greedy's.
    """

    def __init__(self, topology: Topology, time_limit: float, observer: Observer) -> None:
        bare = topology.model_copy(update={"held": {}, "requests": (), "constraints": ()})
        self._prepared, self._time_limit, self._observer = Prepared(bare), time_limit, observer
        self._turn = threading.Lock()
        self._worker: WorkerProcess | None = None
        """The process, once it is ready. Talked to and taken away only by who has the turn."""
        self._newest: WorkerProcess | None = None
        self._stopped = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="solver", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process that is ready to solve, if there is one."""
        worker = self._worker
        return None if worker is None else worker.pid

    def start(self) -> None:
        """Start the process in the background. Until it is ready, greedy answers."""
        if self._time_limit:
            self._keeper.start()

    def stop(self) -> None:
        """End the process."""
        self._stopped.set()
        if self._newest is not None:
            self._newest.kill()
        if self._keeper.is_alive():
            self._keeper.join()

    def solve(self, requests: Sequence[Request], free: frozenset[int]) -> Result:
        """CPUs for the requests, out of the free ones. Raises ``BadInputError``, and nothing for lack of time."""
        began = time.monotonic()
        result = self._answer(requests, free, began + self._time_limit)
        self._observer.solved(result.engine, time.monotonic() - began)
        return result

    def _answer(self, requests: Sequence[Request], free: frozenset[int], deadline: float) -> Result:
        if not self._time_limit:
            return self._greedy(requests, free)
        try:
            return self._exact(requests, free, deadline)
        except NoAnswerError as error:
            log.warning("%s: %s", STANDS_IN, error.message, extra={"fallback": error.why})
            self._observer.fell_back(error.why)
            return self._greedy(requests, free, f"{STANDS_IN}: {error.message}")

    def _greedy(self, requests: Sequence[Request], free: frozenset[int], *notes: str) -> Result:
        result = solve(self._prepared, requests, free=free, engine="greedy", time_limit=EXPLAINING)
        return result.model_copy(update={"notes": (*notes, *result.notes)})

    def _exact(self, requests: Sequence[Request], free: frozenset[int], deadline: float) -> Result:
        reply = self._ask(requests, free, deadline)
        if reply.bad_input:
            raise reply.bad_input.error()
        try:
            if reply.result is None:
                raise DefectError(reply.defect or "an empty answer")
            check(self._prepared, requests, free, reply.result)
        except DefectError as error:
            raise NoAnswerError("defect", str(error)) from None
        return reply.result

    def _ask(self, requests: Sequence[Request], free: frozenset[int], deadline: float) -> Reply:
        """Wait for one's turn and put the question, all within the deadline."""
        if self._worker is None:
            raise NoAnswerError("not_ready", "its process is not ready")
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise NoAnswerError("timeout", f"other claims kept it busy for {self._time_limit:g} s")
        try:
            rest = max(0.0, deadline - time.monotonic())
            question = Question(requests=tuple(requests), free=free, time_limit=rest)
            return self._put(question, rest + GRACE)
        finally:
            self._turn.release()

    def _put(self, question: Question, timeout: float) -> Reply:
        worker = self._worker
        if worker is None:
            raise NoAnswerError("not_ready", "its process has just ended")
        try:
            if reply := worker.ask(question, timeout):
                return reply
            failure = NoAnswerError("timeout", f"no answer within {self._time_limit:g} s")
        except BlockingIOError:
            failure = NoAnswerError("timeout", "its process stopped in the midst of a message")
        except (OSError, EOFError):
            failure = NoAnswerError("crash", "its process has ended")
        except ValidationError as error:
            failure = NoAnswerError("defect", f"an answer that is none: {error.errors()[0]['msg']}")
        self._worker = None
        worker.kill()
        raise failure

    def _keep(self) -> None:
        """Start a process, again whenever it has ended. This thread must live as long as the process is to."""
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            self._run()
            pause = FIRST_PAUSE if time.monotonic() - began > HEALTHY else min(2 * pause, LONGEST_PAUSE)
            self._stopped.wait(pause)

    def _run(self) -> None:
        """One process, from its start to its end."""
        began = time.monotonic()
        try:
            worker = self._newest = WorkerProcess(self._prepared.topology)
        except OSError:
            log.exception("CP-SAT's process cannot be started")
            return
        if not self._stopped.is_set() and worker.is_ready():
            log.info("CP-SAT's process %d is ready after %.1f s", worker.pid, time.monotonic() - began)
            self._worker = worker
        else:
            worker.kill()
        code = worker.wait()
        with self._turn:
            self._worker = None
            worker.close()
        if not self._stopped.is_set():
            log.warning("CP-SAT's process %d has ended with code %d; another one is started", worker.pid, code)
