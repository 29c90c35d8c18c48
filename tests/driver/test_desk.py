"""Calls of the kubelet that can be answered only later."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from driver import desk as desk_module
from driver import hope
from driver.desk import Desk
from driver.errors import RefusedError
from driver.ledger.entry import Entry
from driver.ports import ClaimRef, Document
from models import Request, Result
from tests.driver.bench import Bench
from tests.driver.claims.documents import cpuset, options
from tests.driver.cluster.waiting import until

LIVENESS = 60.0
"""Seconds in which what must happen without any time passing has happened."""


class Counter:
    """A desk, its event loop in a thread, and the calls that were made to it."""

    def __init__(self, bench: Bench, longest: float = 300.0) -> None:
        self.bench = bench
        bench.preparer = bench.preparer.__class__(
            **{
                name: getattr(bench.preparer, name)
                for name, field in bench.preparer.__dataclass_fields__.items()
                if field.init
            }
            | {"busy": 0.01}
        )
        self.desk = Desk(bench.preparer, longest)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    @contextmanager
    def open(self) -> Iterator["Counter"]:
        self.desk.start()
        self.thread.start()
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.desk.stop()
            self.loop.close()

    def prepare(self, ref: ClaimRef) -> "Called":
        return self._call(self.desk.prepare(ref))

    def unprepare(self, ref: ClaimRef) -> "Called":
        return self._call(self.desk.unprepare(ref))

    def waiting(self, calls: int = 1) -> None:
        """So many calls wait now."""
        until(lambda: self.desk._waiting == calls)

    def _call(self, coroutine: Any) -> "Called":
        return Called(asyncio.run_coroutine_threadsafe(coroutine, self.loop))


class Called:
    """A call that was made."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def cpus(self) -> frozenset[int]:
        entry: Entry = self.future.result(LIVENESS)
        return entry.cpuset

    def refusal(self) -> tuple[str, str]:
        with pytest.raises(RefusedError) as error:
            self.future.result(LIVENESS)
        return error.value.reason, error.value.message


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, reservedCPUs="0-1")


@pytest.fixture(autouse=True)
def signs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but signs ends a wait, but where only time can."""
    monkeypatch.setattr(hope, "LEAVING", hope.replace(hope.LEAVING, pause=600.0))
    monkeypatch.setattr(hope, "FRESH", 0.0)
    passing = {reason: hope.replace(each, pause=0.02) for reason, each in hope.PASSING.items()}
    monkeypatch.setattr(hope, "PASSING", passing)


@pytest.fixture
def counter(bench: Bench) -> Iterator[Counter]:
    with Counter(bench).open() as opened:
        yield opened


def let_go(document: Document) -> None:
    document["status"]["reservedFor"] = []


def deallocate(document: Document) -> None:
    del document["status"]["allocation"]


def replace(document: Document) -> None:
    document["metadata"]["uid"] = "another"


def move(document: Document) -> None:
    for each in document["status"]["allocation"]["devices"]["results"]:
        each["driver"] = "gpu.example.com"


@pytest.mark.parametrize("leave", [let_go, deallocate, replace, move, dict.clear], ids=lambda each: each.__name__)
def test_a_claim_gets_the_cpus_of_one_that_is_about_to_leave_as_soon_as_it_has_left(
    bench: Bench, counter: Counter, leave: Callable[[Document], object]
) -> None:
    """The scheduler counts on them already; the kubelet frees them in a moment."""
    old, new = bench.claim("old", 20), bench.claim("new", 20)
    held = counter.prepare(old).cpus()
    leave(bench.shelf.documents[old.namespace, old.name])
    if not bench.shelf.documents[old.namespace, old.name]:
        del bench.shelf.documents[old.namespace, old.name]
    call = counter.prepare(new)
    counter.waiting()
    assert bench.held == {"old": held}
    counter.unprepare(old).future.result(LIVENESS)
    assert len(call.cpus()) == 20
    assert bench.recorder.reasons == {}
    assert [reason for _, reason, _ in bench.told.events] == ["Note"]
    assert "claims that are about to leave: default/claim-old" in bench.told.events[0][2]
    assert bench.recorder.stages["wait"] == 1
    bench.check()


def test_where_nobody_is_about_to_leave_a_claim_is_refused_at_once(bench: Bench, counter: Counter) -> None:
    counter.prepare(bench.claim("old", 20)).cpus()
    assert counter.prepare(bench.claim("new", 20)).refusal()[0] == "NotPlaceable"
    assert bench.recorder.reasons == {"NotPlaceable": 1}
    assert [reason for _, reason, _ in bench.told.events] == ["NotPlaceable"]


def test_where_a_claim_would_not_fit_even_then_it_is_refused_at_once(bench: Bench, counter: Counter) -> None:
    old, kept = bench.claim("old", 8), bench.claim("kept", 16)
    for ref in (old, kept):
        counter.prepare(ref).cpus()
    let_go(bench.shelf.documents[old.namespace, old.name])
    assert counter.prepare(bench.claim("new", 15)).refusal()[0] == "NotPlaceable"
    call = counter.prepare(bench.claim("newer", 14))
    counter.waiting()
    counter.unprepare(old)
    assert len(call.cpus()) == 14


def test_cpus_by_number_are_waited_for_too(bench: Bench, counter: Counter) -> None:
    old = bench.claim("old", 4, configs=[cpuset("4-7")])
    counter.prepare(old).cpus()
    new = bench.claim("new", 2, configs=[cpuset("7-8")])
    assert counter.prepare(new).refusal()[0] == "Held"
    let_go(bench.shelf.documents[old.namespace, old.name])
    call = counter.prepare(new)
    counter.waiting()
    counter.unprepare(old)
    assert call.cpus() == {7, 8}


def test_the_shared_cpus_that_would_be_left_are_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minSharedCPUs=2)
    with Counter(bench).open() as counter:
        old = bench.claim("old", 10, configs=[cpuset("0-9")])
        counter.prepare(old).cpus()
        new = bench.claim("new", 21, configs=[cpuset("10-30")])
        assert counter.prepare(new).refusal()[0] == "NoSharedCPU"
        let_go(bench.shelf.documents[old.namespace, old.name])
        call = counter.prepare(new)
        counter.waiting()
        counter.unprepare(old)
        assert len(call.cpus()) == 21


def test_a_claim_that_is_freed_just_now_is_about_to_leave_whatever_the_api_server_says(
    bench: Bench, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, go_on, freeing = bench.claim("old", 20), threading.Event(), threading.Event()
    counter.prepare(old).cpus()
    remove = type(bench.cdi).remove
    monkeypatch.setattr(
        type(bench.cdi), "remove", lambda self, uid: (freeing.set(), go_on.wait(60), remove(self, uid))
    )
    counter.unprepare(old)
    assert freeing.wait(60)
    call = counter.prepare(bench.claim("new", 20))
    counter.waiting()
    go_on.set()
    assert len(call.cpus()) == 20


def test_cpus_that_come_free_while_it_is_asked_who_leaves_are_not_missed(bench: Bench, counter: Counter) -> None:
    old, new = bench.claim("old", 20), bench.claim("new", 20)
    counter.prepare(old).cpus()
    asked = []

    def meanwhile() -> None:
        asked.append(1)
        if len(asked) == 2:  # The first question was about the new claim itself.
            bench.preparer.unprepare(old)

    bench.shelf.meanwhile = meanwhile
    assert len(counter.prepare(new).cpus()) == 20


def test_an_api_server_that_is_away_for_a_moment_is_waited_for(bench: Bench, counter: Counter) -> None:
    bench.shelf.answers = False
    call = counter.prepare(bench.claim("a", 4))
    until(lambda: bench.shelf.asked > 2)
    bench.shelf.answers = True
    assert len(call.cpus()) == 4
    assert bench.recorder.reasons == {}


def test_a_runtime_that_is_started_anew_is_waited_for_and_other_conditions_are_not(
    bench: Bench, counter: Counter
) -> None:
    bench.conditions.set("NRIAway", "no runtime")
    call = counter.prepare(bench.claim("a", 4))
    counter.waiting()
    bench.conditions.clear("NRIAway")
    assert len(call.cpus()) == 4
    bench.conditions.set("NRIAway", "no runtime")
    bench.conditions.set("TopologyChanged", "CPU 7 went down")
    assert counter.prepare(bench.claim("b", 4)).refusal()[0] == "Degraded"


def test_who_answers_the_runtime_is_waited_for_with_the_cpus_held(
    bench: Bench, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.containers, "knows", lambda timeout: False)
    call = counter.prepare(bench.claim("a", 4))
    until(lambda: bench.shelf.asked > 2)
    held = bench.held["a"]
    monkeypatch.setattr(bench.containers, "knows", lambda timeout: True)
    assert call.cpus() == held
    assert bench.recorder.engines == {"greedy": 1}
    assert bench.containers.waits == 1, "its neighbours have to leave, though the ledger had it by then"


def test_the_end_of_a_former_container_is_waited_for(bench: Bench, counter: Counter) -> None:
    counter.prepare(bench.claim("a", 4)).cpus()
    bench.containers.carried = {"a"}
    call = counter.prepare(bench.claim("a", 6))
    counter.waiting()
    bench.containers.carried = set()
    assert len(call.cpus()) == 6


class Unsure:
    """A solver that finds nothing the first times."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.asked = bench, 0

    def solve(self, requests: Sequence[Request], free: frozenset[int]) -> Result:
        self.asked += 1
        if self.asked < 3:
            return Result(status="unknown", engine="cpsat")
        return self.bench.greedy.solve(requests, free)


def test_a_solver_that_has_not_decided_is_asked_again(
    bench: Bench, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driver.refusals.UNDECIDED", 0.0)
    unsure = Unsure(bench)
    monkeypatch.setattr(
        bench.preparer.placer, "_tries", [(unsure, *rest) for _, *rest in bench.preparer.placer._tries]
    )
    assert len(counter.prepare(bench.claim("a", 4)).cpus()) == 4
    assert unsure.asked == 3


@pytest.mark.parametrize("what", ["prepare", "unprepare"])
def test_an_earlier_call_about_the_same_claim_is_waited_for(bench: Bench, counter: Counter, what: str) -> None:
    ref = bench.claim("a", 4)
    cpus = counter.prepare(ref).cpus()
    with bench.ledger.locks.of("a"):
        call = getattr(counter, what)(ref)
        counter.waiting()
        assert len(counter.prepare(bench.claim("b", 4)).cpus()) == 4, "nobody else waits"
    call.future.result(LIVENESS)
    assert bench.held.get("a") == (cpus if what == "prepare" else None)
    assert bench.told.events == []


def test_who_waits_keeps_nobody_from_anything(
    bench: Bench, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as may wait, more than there are threads: others are prepared, and all are unprepared."""
    old = bench.claim("old", 20)
    counter.prepare(old).cpus()
    let_go(bench.shelf.documents[old.namespace, old.name])
    refs = [bench.claim(f"w{number}", 20) for number in range(desk_module.MOST_WAITING)]
    calls = [counter.prepare(ref) for ref in refs]
    counter.waiting(len(calls))
    surplus = counter.prepare(bench.claim("surplus", 20))
    assert surplus.refusal()[0] == "NotPlaceable"
    for ref in refs:
        counter.unprepare(ref).future.result(LIVENESS)
    small = [counter.prepare(bench.claim(f"s{number}", 1)) for number in range(10)]
    assert sum(len(each.cpus()) for each in small) == 10
    with bench.ledger.locks.of(refs[0].uid, timeout=0):
        pass
    monkeypatch.setattr(hope, "LEAVING", hope.replace(hope.LEAVING, pause=0.1))
    counter.unprepare(old)
    until(lambda: len(bench.held) == 11)
    counter.waiting(0)
    done = [call for call in calls if not call.future.exception(LIVENESS)]
    assert [len(call.cpus()) for call in done] == [20]
    bench.check()


def test_a_wait_ends_and_says_what_for(bench: Bench) -> None:
    with Counter(bench, longest=0.2).open() as counter:
        bench.shelf.answers = False
        reason, message = counter.prepare(bench.claim("a", 4)).refusal()
    assert reason == "ApiAway"
    assert message.endswith("(after waiting for the API server)")
    assert bench.recorder.reasons == {"ApiAway": 1}
    assert [reason for _, reason, _ in bench.told.events] == ["Note", "ApiAway"]


def test_a_kubelet_that_hangs_up_waits_no_longer(bench: Bench, counter: Counter) -> None:
    old, new = bench.claim("old", 20), bench.claim("new", 20)
    counter.prepare(old).cpus()
    let_go(bench.shelf.documents[old.namespace, old.name])
    call = counter.prepare(new)
    counter.waiting()
    call.future.cancel()
    counter.waiting(0)
    counter.unprepare(old).future.result(LIVENESS)
    assert len(counter.prepare(bench.claim("newer", 30)).cpus()) == 30
    assert bench.recorder.reasons == {}


def test_what_no_thread_has_begun_when_the_kubelet_hangs_up_is_not_begun(bench: Bench, counter: Counter) -> None:
    ref = bench.claim("a", 4)
    with bench.ledger.locks.of("a"):
        bench.preparer.__dict__["busy"] = 60.0
        call = counter.prepare(ref)
        until(lambda: bench.ledger.locks._users.get("a") == 2)
        call.future.cancel()
        until(lambda: not counter.desk._under_way)
    until(lambda: not bench.ledger.locks._users)
    assert bench.held == {}


def test_an_api_server_that_hangs_holds_up_neither_known_claims_nor_unprepare(
    bench: Bench, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "KNOWN", 0.0)
    known, go_on, inside = bench.claim("known", 4), threading.Event(), threading.Semaphore(0)
    cpus = bench.prepare(known)
    bench.shelf.meanwhile = lambda: (inside.release(), go_on.wait(120))
    calls = [counter.prepare(bench.claim(f"u{number}", 1)) for number in range(desk_module.READERS + 4)]
    for _ in range(desk_module.READERS):
        assert inside.acquire(timeout=60)
    assert counter.prepare(known).cpus() == cpus
    assert bench.behind == ["known"]
    counter.unprepare(known).future.result(LIVENESS)
    assert "known" not in bench.held
    go_on.set()
    assert all(len(call.cpus()) == 1 for call in calls)


def test_a_hopeless_question_is_worked_on_once_for_each_set_of_free_cpus(bench: Bench, counter: Counter) -> None:
    small = bench.claim("small", 2)
    counter.prepare(small).cpus()
    solved = bench.recorder.solvers.total()
    refs = [bench.claim(f"h{n}", 29, 1, configs=[options(allocationPolicy="distributed")]) for n in range(8)]
    for _ in range(2):
        messages = {counter.prepare(ref).refusal()[1] for ref in refs}
        assert len(messages) == 1
    assert bench.recorder.solvers.total() == solved + 1
    counter.unprepare(small).future.result(LIVENESS)
    assert len(counter.prepare(refs[0]).cpus()) == 30
