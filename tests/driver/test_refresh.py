import threading
from collections.abc import Callable, Iterator

import pytest

from driver import refresh
from driver.errors import RefusedError
from driver.refresh import Refresher
from tests.driver.cluster.waiting import until


class Looks:
    """Counts looks by uid. ``meanwhile`` happens during each of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, uid: str) -> None:
        self.seen.append(uid)
        self.meanwhile()


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def refresher(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refresher]:
    monkeypatch.setattr(refresh, "QUIET", 0.0)
    monkeypatch.setattr(refresh, "FIRST_PAUSE", 0.01)
    made = Refresher(looks)
    made.start()
    yield made
    made.stop()


def test_a_claim_that_waits_for_its_look_is_looked_at_once_however_often_it_is_asked_for(
    refresher: Refresher, looks: Looks
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    looks.meanwhile = lambda: (inside.set(), go_on.wait(60))
    refresher.ask("a")
    assert inside.wait(60)
    for uid in "abbaccab":
        refresher.ask(uid)
    go_on.set()
    until(lambda: len(looks.seen) == 4)
    refresher.ask("last")
    until(lambda: looks.seen[-1] == "last")
    assert sorted(looks.seen[1:4]) == ["a", "b", "c"], "what happened since a look began may not be in it"


def test_two_looks_at_one_claim_are_a_while_apart_and_other_claims_do_not_wait_for_that(looks: Looks) -> None:
    now = [100.0]
    refresher = Refresher(looks, lambda: now[0])
    for uid in ("a", "a"):
        refresher.ask(uid)
    assert refresher._next() == "a"
    refresher.ask("a")
    refresher.ask("b")
    assert refresher._next() == "b"
    assert refresher._due == {"a": 100.0 + refresh.QUIET}
    now[0] += refresh.QUIET
    assert refresher._next() == "a"
    now[0] += 2 * refresh.QUIET
    refresher.ask("c")
    assert refresher._next() == "c"
    assert refresher._looked.keys() == {"c"}, "what was long ago is not kept"


def test_a_look_that_the_api_server_does_not_answer_is_made_up_for(refresher: Refresher, looks: Looks) -> None:
    def fail() -> None:
        if len(looks.seen) < 4:
            raise RefusedError("ApiAway", "nobody answers")

    looks.meanwhile = fail
    refresher.ask("a")
    until(lambda: len(looks.seen) == 4)
    refresher.ask("b")
    until(lambda: looks.seen == ["a"] * 4 + ["b"])


@pytest.mark.parametrize("error", [RefusedError("ClaimGone", "there is none"), ZeroDivisionError()])
def test_any_other_failure_ends_the_look_and_not_the_thread(
    refresher: Refresher, looks: Looks, error: Exception
) -> None:
    def fail() -> None:
        raise error

    looks.meanwhile = fail
    refresher.ask("a")
    until(lambda: looks.seen == ["a"])
    looks.meanwhile = lambda: None
    refresher.ask("b")
    until(lambda: looks.seen == ["a", "b"])


def test_so_many_claims_wait_and_no_more(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "MOST", 3)
    refresher = Refresher(looks)
    for number in range(10):
        refresher.ask(str(number))
    assert list(refresher._due) == ["0", "1", "2"]
