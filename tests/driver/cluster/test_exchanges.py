import threading
from collections.abc import Iterator

import pytest

from driver.cluster import exchanges as exchanges_module
from driver.cluster.exchanges import Exchanges, LateError
from tests.driver.cluster.waiting import until

LONG = 60.0


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    found = Exchanges(threads=2)
    yield found
    found.close()


class Hanging:
    """Calls that do not return until they are let go."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges, self._go = exchanges, threading.Event()
        self.begun = threading.Semaphore(0)
        self.ends: list[BaseException | None] = []

    def _call(self, _: float) -> None:
        self.begun.release()
        assert self._go.wait(LONG)

    def _ask(self) -> None:
        try:
            self._exchanges.run(self._call, LONG)
            self.ends.append(None)
        except LateError as error:
            self.ends.append(error)

    def add(self, number: int) -> None:
        for _ in range(number):
            threading.Thread(target=self._ask, daemon=True).start()

    def let_go(self) -> None:
        self._go.set()


def test_a_call_returns_or_raises_and_knows_how_long_it_may_take(exchanges: Exchanges) -> None:
    assert 0 < exchanges.run(lambda left: left, 7.0) <= 7.0
    for error in (KeyError("k"), TimeoutError("its own")):

        def fail(_: float, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error.args[0])):
            exchanges.run(fail, LONG)


def test_whoever_has_waited_long_enough_leaves_though_the_call_hangs(exchanges: Exchanges) -> None:
    hanging, called = Hanging(exchanges), []
    hanging.add(2)
    for _ in range(2):
        assert hanging.begun.acquire(timeout=LONG)
    with pytest.raises(LateError, match="not complete"):
        exchanges.run(called.append, 0.05)
    hanging.let_go()
    until(lambda: len(hanging.ends) == 2)
    assert exchanges.run(lambda _: "again", LONG) == "again"
    assert called == [], "nobody waited for it any more"


def test_there_are_no_more_threads_than_calls_or_than_are_allowed(exchanges: Exchanges) -> None:
    hanging = Hanging(exchanges)
    for _ in range(3):
        exchanges.run(lambda _: None, LONG)
        until(lambda: exchanges._unfinished == 0)
    assert exchanges._threads == 1
    hanging.add(5)
    for _ in range(2):
        assert hanging.begun.acquire(timeout=LONG)
    assert not hanging.begun.acquire(timeout=0.1)
    assert exchanges._threads == 2
    hanging.let_go()
    until(lambda: hanging.ends == [None] * 5)


def test_too_many_calls_that_wait_are_refused(exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging(exchanges)
    hanging.add(exchanges_module.MOST_WAITING + 2)
    until(exchanges._tasks.full)
    with pytest.raises(LateError, match="wait already"):
        exchanges.run(lambda _: None, LONG)
    hanging.let_go()
    until(lambda: len(hanging.ends) == exchanges_module.MOST_WAITING + 2)


def test_threads_that_have_nothing_to_do_end_and_others_begin(
    exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges_module, "IDLE", 0.01)
    for _ in range(3):
        assert exchanges.run(lambda _: 7, LONG) == 7
        until(lambda: exchanges._threads == 0)


def test_where_no_thread_can_be_started_calls_are_refused_until_one_can(
    exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[float] = []
    with monkeypatch.context() as patched:

        def fail(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", fail)
        for _ in range(3):
            with pytest.raises(LateError, match="no thread can be started"):
                exchanges.run(called.append, LONG)
    assert exchanges.run(lambda _: 7, LONG) == 7
    assert called == [], "nobody waited for these"


def test_all_who_wait_are_woken_at_the_end(exchanges: Exchanges) -> None:
    hanging = Hanging(exchanges)
    hanging.add(5)
    assert hanging.begun.acquire(timeout=LONG)
    until(lambda: len(exchanges._waited_for) == 5)
    exchanges.close()
    until(lambda: len(hanging.ends) == 5)
    assert all(isinstance(each, LateError) for each in hanging.ends)
    with pytest.raises(LateError, match="the driver is ending"):
        exchanges.run(lambda _: None, LONG)
    hanging.let_go()


def test_nothing_is_remembered_of_calls_that_are_over(exchanges: Exchanges) -> None:
    exchanges.run(lambda _: None, LONG)
    until(lambda: exchanges._unfinished == 0)
    assert not exchanges._waited_for
