"""From a wish to reserved CPUs: asks the solver, and asks again when another claim has been quicker."""

import logging
import threading
from collections.abc import Sequence

from driver.claims.wish import Wish
from driver.errors import RefusedError
from driver.ledger.book import Ledger, holders
from driver.ledger.entry import Entry, Snapshot
from driver.options import in_users_words
from driver.ports import Observer, Solver
from driver.refusals import Question, Refusals
from models import BadInputError, DefectError, Infeasible, InfeasibleError, Request, Result, Topology, UnknownError

log = logging.getLogger(__name__)

EXACT_TRIES, GREEDY_TRIES = 2, 8

PATIENCE = 2.0
"""Seconds to wait for those who ask the solver before us."""


class LostRaceError(Exception):
    """CPUs that were free when the solver was asked are another claim's now."""


class Placer:
    """Chooses CPUs and reserves them in the ledger's memory. Safe to use from any thread.

    Claims take turns with the ``solver``: asked at once it would give all of them the same CPUs, and all but one
    would have to ask again. Nobody waits for a turn for long: who has waited or was overtaken is served by
    ``greedy``, which takes milliseconds. No lock is held that a reader of the ledger wants.
    """

    def __init__(
        self, ledger: Ledger, topology: Topology, solver: Solver, greedy: Solver, observer: Observer
    ) -> None:
        self._ledger, self._observer, self._greedy = ledger, observer, greedy
        self._refusals = Refusals()
        self._numa = {cpu.cpu: cpu.numa for cpu in topology.cpus}
        self._turn, self._greedy_turn = threading.Lock(), threading.Lock()
        exact = [(solver, self._turn, PATIENCE)] * EXACT_TRIES
        self._tries = exact + [(greedy, self._greedy_turn, -1.0)] * GREEDY_TRIES

    def place(self, draft: Entry, wish: Wish) -> tuple[Entry, tuple[str, ...]]:
        """The draft with its CPUs, which are reserved, and notes: preferences that were not met.

        Raises ``RefusedError``: ``Held``, ``NoSharedCPU``, ``NotPlaceable``, ``NotDecided``, ``BadConfig``,
        ``Defect``.
        """
        if not wish.requests:
            return self._reserved(draft, wish, None), ()
        for number, (solver, turn, patience) in enumerate(self._tries):
            if number == EXACT_TRIES:
                log.warning("the solver is kept busy by other claims; greedy stands in for it")
                self._observer.fell_back("timeout")
            self._refusals.check(self._question(wish, self._ledger.snapshot))
            if not turn.acquire(timeout=patience):
                continue
            try:
                return self._attempt(draft, wish, solver)
            except LostRaceError:
                log.info("another claim was quicker; CPUs are chosen again")
            finally:
                turn.release()
        raise RefusedError("NotDecided", "other claims took its CPUs again and again; it is tried again")

    def can_fit(self, wish: Wish, coming: frozenset[int]) -> bool:
        """Whether the wish could be placed if these CPUs of other claims were free, as far as greedy can tell."""
        before, given = self._ledger.snapshot, wish.set_aside
        free = (before.free | coming & before.node.allocatable) - before.foreign.given
        asked = len(given) + sum(request.cpus for request in wish.requests)
        if not given <= free or len(free) - asked < before.node.min_shared:
            return False
        if not wish.requests:
            return True
        try:
            with self._greedy_turn:
                self._asked(self._greedy, Question(wish.requests, free - given, given))
        except RefusedError as error:
            return error.reason == "NotDecided"
        return True

    def _attempt(self, draft: Entry, wish: Wish, solver: Solver) -> tuple[Entry, tuple[str, ...]]:
        before, given = self._ledger.snapshot, wish.set_aside
        if clash := given & before.taken:
            raise RefusedError("Held", holders(before, clash))
        question = self._question(wish, before)
        result = self._asked(solver, question)
        try:
            return self._reserved(draft, wish, result), tuple(map(in_users_words, result.notes))
        except RefusedError as error:
            if error.reason == "Held":
                raise LostRaceError from None
            if self._ledger.snapshot.free == before.free:
                self._refusals.keep(question, error)
            raise

    def _question(self, wish: Wish, snapshot: Snapshot) -> Question:
        return Question(wish.requests, _offered(snapshot, wish.set_aside), wish.set_aside)

    def _asked(self, solver: Solver, question: Question) -> Result:
        """The solver's answer, or the refusal that it led to before."""
        self._refusals.check(question)
        try:
            return _answer(solver, question.requests, question.free)
        except RefusedError as error:
            self._refusals.keep(question, error)
            raise

    def _reserved(self, draft: Entry, wish: Wish, result: Result | None) -> Entry:
        entry = self._filled(draft, wish, result)
        self._ledger.reserve(entry)
        return entry

    def _filled(self, draft: Entry, wish: Wish, result: Result | None) -> Entry:
        allocations = result.allocations if result else ()
        cpuset = wish.set_aside.union(*(allocation.cpuset for allocation in allocations))
        found = {
            "cpuset": cpuset,
            "mems": self._mems(wish, cpuset),
            "allocations": allocations,
            "engine": result.engine if result else None,
        }
        return draft.model_copy(update=found)

    def _mems(self, wish: Wish, cpuset: frozenset[int]) -> frozenset[int]:
        """NUMA nodes that the claim's memory is to be bound to; none for no binding, or where none has memory."""
        if wish.memory == "none":
            return frozenset()
        nodes = {self._numa.get(cpu) for cpu in cpuset}
        return frozenset(node for node in nodes if node is not None) - self._ledger.snapshot.node.memoryless


def _offered(snapshot: Snapshot, given: frozenset[int]) -> frozenset[int]:
    """Free CPUs that the solver may choose from.

    Where the kernel isolates CPUs, which are not shared anyway, those that must stay shared are kept from it.
    """
    free, node = snapshot.free - given, snapshot.node
    return free - node.withheld(free) if node.withholds else free


def _answer(solver: Solver, requests: Sequence[Request], free: frozenset[int]) -> Result:
    """The solver's answer, if it is CPUs."""
    try:
        result = solver.solve(requests, free)
        result.require()
    except BadInputError as error:
        raise RefusedError("BadConfig", str(error)) from None
    except InfeasibleError as error:
        raise RefusedError("NotPlaceable", in_users_words(_clash(error.infeasible))) from None
    except UnknownError as error:
        raise RefusedError("NotDecided", f"{error}; it is tried again") from None
    except DefectError as error:
        raise RefusedError("Defect", f"a bug in cpusat, please report it: {error}") from None
    return result


def _clash(infeasible: Infeasible) -> str:
    """What clashes and what would fit. Which CPUs a request is within is its device, no option of users."""
    nearest = infeasible.nearest
    if nearest is None or nearest.option != "within":
        return str(infeasible)
    alone = infeasible.model_copy(update={"nearest": None})
    way_out = "delete the pod, so that it is scheduled anew"
    return f"{alone}. Request {nearest.request!r} would be placed with another device: {way_out}"
