import threading

import pytest

from driver.ledger.locks import BusyError, Locks


def test_a_key_is_held_by_one_at_a_time_and_others_are_not_kept_waiting() -> None:
    locks, entered, done = Locks(), threading.Event(), []

    def other() -> None:
        entered.set()
        with locks.of("a"):
            done.append("other")

    with locks.of("a"):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(60)
        with locks.of("b"):
            done.append("b")
        done.append("a")
    thread.join(60)
    assert done == ["b", "a", "other"]


def test_nobody_waits_longer_than_asked_for() -> None:
    locks = Locks()
    with locks.of("a"), pytest.raises(BusyError), locks.of("a", timeout=0.01):
        pytest.fail("it is held")
    with locks.of("a", timeout=0.01):
        pass


def test_locks_that_nobody_wants_are_not_kept() -> None:
    locks = Locks()
    for n in range(100):
        with pytest.raises(ZeroDivisionError), locks.of(str(n)):
            1 / 0  # noqa: B018
    assert locks._locks == locks._users == {}
