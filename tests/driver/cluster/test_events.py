from collections.abc import Iterator

import pytest

from driver.cluster import events as events_module
from driver.cluster.api import Api
from driver.cluster.events import PAUSE, QUIET, Events, Memory
from driver.ports import ClaimRef
from tests.driver.claims.documents import REF
from tests.driver.cluster.api_server import ApiServer
from tests.driver.cluster.waiting import until

TOLD = (REF.uid, "Held", "CPUs 1-2 are held")


@pytest.fixture
def events(api: Api):
    teller = Events(api, "node-1")
    teller.start()
    yield teller
    teller.stop()


def messages(server: ApiServer) -> list[str]:
    return [event["message"] for event in server.events()]


def test_an_event_on_a_claim_with_a_very_long_name_has_a_name_that_is_valid(
    server: ApiServer, events: Events
) -> None:
    events.tell(ClaimRef("u", "default", "a" * 198 + "-.b" + "c" * 50), "Held", "CPUs 1-2 are held")
    (event,) = until(server.events)
    assert event["metadata"]["name"].startswith("a" * 198 + ".")


def test_an_event_is_on_the_claim_and_says_who_and_why(server: ApiServer, events: Events) -> None:
    events.tell(REF, "NotPlaceable", "10 CPUs requested, 8 free")
    (event,) = until(server.events)
    about = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"], about["uid"]) == (
        "ResourceClaim",
        "default",
        "cpus",
        REF.uid,
    )
    assert (event["reason"], event["message"], event["type"]) == (
        "NotPlaceable",
        "10 CPUs requested, 8 free",
        "Warning",
    )
    assert (event["reportingComponent"], event["source"]["host"]) == ("dra.cpu", "node-1")
    assert event["metadata"]["namespace"] == "default"


def test_the_same_is_told_once_and_what_differs_is_told_too(server: ApiServer, events: Events) -> None:
    for _ in range(5):
        events.tell(REF, "NotPlaceable", "8 free")
    events.tell(REF, "NotPlaceable", "7 free")
    events.tell(REF, "Note", "8 free", warning=False)
    events.tell(ClaimRef("another-uid", "default", "cpus"), "NotPlaceable", "8 free")
    events.tell(REF, "NotPlaceable", "last")
    until(lambda: "last" in messages(server))
    assert messages(server) == ["8 free", "7 free", "8 free", "8 free", "last"]
    assert [event["type"] for event in server.events()].count("Normal") == 1


class Clock:
    """Seconds, which the test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counting(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    monkeypatch.setattr(events_module, "WARMING", 0.01)
    teller = Events(api, "node-1", clock)
    teller.start()
    yield teller
    teller.stop()


def repeat(events: Events, clock: Clock, times: int, pause: float = PAUSE) -> None:
    """The same refusal, again and again."""
    for _ in range(times):
        clock.now += pause
        events.tell(REF, "NotPlaceable", "8 free")


def counts(server: ApiServer) -> list[int]:
    return [event["count"] for event in server.events()]


def asked(server: ApiServer, method: str) -> int:
    return sum(each == method for each, _ in server.requests)


def test_an_event_counts_up_while_the_same_happens_again(
    server: ApiServer, counting: Events, clock: Clock
) -> None:
    repeat(counting, clock, 1)
    (first,) = until(server.events)
    for number in (2, 3, 4):
        repeat(counting, clock, 1, 70.0)
        until(lambda number=number: counts(server) == [number])
    (last,) = server.events()
    changing = ("count", "lastTimestamp")
    assert {key: last[key] for key in last if key not in (*changing, "metadata")} == {
        key: first[key] for key in first if key not in (*changing, "metadata")
    }
    assert last["metadata"]["name"] == first["metadata"]["name"]
    assert (asked(server, "POST"), asked(server, "PATCH")) == (1, 3)


def test_the_time_of_an_event_that_counts_up_is_that_of_the_last_one(
    server: ApiServer, counting: Events, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in ("2026-01-01T00:00:00Z", "2026-01-01T00:01:10Z"):
        monkeypatch.setattr(events_module, "_moment", lambda moment=moment: moment)
        repeat(counting, clock, 1)
        until(lambda moment=moment: [event["lastTimestamp"] for event in server.events()] == [moment])
    assert server.events()[0]["firstTimestamp"] == "2026-01-01T00:00:00Z"


def test_what_happens_very_often_is_counted_and_seldom_sent(
    server: ApiServer, counting: Events, clock: Clock
) -> None:
    repeat(counting, clock, 1)
    until(server.events)
    repeat(counting, clock, 50, PAUSE / 100)
    repeat(counting, clock, 1)
    until(lambda: counts(server) == [52])
    assert asked(server, "PATCH") == 1


def test_an_event_that_the_server_has_forgotten_is_created_again_and_counts_on(
    server: ApiServer, counting: Events, clock: Clock
) -> None:
    repeat(counting, clock, 1)
    (event,) = until(server.events)
    server.delete("events", "default", event["metadata"]["name"])
    repeat(counting, clock, 1, 3700.0)
    until(lambda: counts(server) == [2])
    assert server.events()[0]["firstTimestamp"] == event["firstTimestamp"]
    repeat(counting, clock, 1)
    until(lambda: counts(server) == [3])


FORBIDDEN = (403, b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not patch events"}')


@pytest.mark.parametrize("refusal", [FORBIDDEN, (405, b"{}"), (415, b"{}")])
def test_where_events_may_not_be_patched_the_same_is_told_again_after_ten_minutes(
    server: ApiServer, counting: Events, clock: Clock, caplog: pytest.LogCaptureFixture, refusal: tuple[int, bytes]
) -> None:
    caplog.set_level("INFO")
    server.fault = lambda method, path: refusal if method == "PATCH" else None
    repeat(counting, clock, 1)
    until(server.events)
    counting.tell(REF, "Held", "another")
    clock.now += QUIET / 2
    repeat(counting, clock, 1)
    until(lambda: "told again and not counted up" in caplog.text)
    repeat(counting, clock, 3, QUIET / 10)
    clock.now += QUIET / 4
    counting.tell(REF, "Held", "another")
    until(lambda: len(messages(server)) == 3)
    assert messages(server) == ["8 free", "another", "another"]
    assert asked(server, "PATCH") == (2 if refusal is FORBIDDEN else 1), "that may be tried twice"
    clock.now += QUIET
    server.fault = lambda method, path: None
    repeat(counting, clock, 1)
    until(lambda: counts(server) == [6, 1, 2])


def test_what_is_not_allowed_for_a_moment_is_tried_once_more(
    server: ApiServer, counting: Events, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """As by an API server that has just begun."""
    refusals = {"POST": [FORBIDDEN], "PATCH": [FORBIDDEN]}
    server.fault = lambda method, path: refusals[method].pop() if refusals.get(method) else None
    for number in (1, 2):
        repeat(counting, clock, 1)
        until(lambda number=number: counts(server) == [number])
    assert refusals == {"POST": [], "PATCH": []}
    assert caplog.text == ""


def test_one_that_could_not_be_counted_up_is_counted_with_the_next(
    server: ApiServer, counting: Events, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeat(counting, clock, 1)
    until(server.events)
    server.fault = lambda method, path: (500, b"{}")
    repeat(counting, clock, 1)
    until(lambda: "no event on claim" in caplog.text)
    assert asked(server, "PATCH") == 1
    server.fault = lambda method, path: None
    repeat(counting, clock, 1, 0.0)
    until(lambda: counts(server) == [3])


def test_the_same_is_told_again_after_a_pause_and_counted_meanwhile() -> None:
    memory = Memory()
    assert memory.count(TOLD, 100.0, "first", PAUSE)
    assert not memory.count(TOLD, 100.0 + PAUSE - 1, "later", PAUSE)
    assert memory.count(TOLD, 100.0 + PAUSE, "later", PAUSE)
    assert not memory.count(TOLD, 101.0 + PAUSE, "later", PAUSE)
    record = memory.of(TOLD, "now")
    assert (record.count, record.first) == (4, "first")


def test_memory_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MOST_REMEMBERED", 3)
    memory = Memory()
    for number in range(4):
        assert memory.count(("uid", "Held", str(number)), float(number), "m", PAUSE)
    assert not memory.count(("uid", "Held", "3"), 5.0, "m", PAUSE)
    assert memory.count(("uid", "Held", "0"), 5.0, "m", PAUSE)


def test_a_claim_without_a_name_is_not_told_of(server: ApiServer, events: Events) -> None:
    events.tell(ClaimRef("nameless"), "Held", "nobody can be told")
    events.tell(REF, "Held", "last")
    until(lambda: messages(server) == ["last"])


def test_what_did_not_get_through_is_told_when_there_is_cause_again(server: ApiServer, events: Events) -> None:
    server.away()
    events.tell(REF, "Held", "CPUs 1-2 are held")
    server.back()

    def again() -> bool:
        events.tell(REF, "Held", "CPUs 1-2 are held")
        return bool(messages(server))

    until(again)
    assert messages(server) == ["CPUs 1-2 are held"]


def test_a_message_is_cut_to_what_the_server_takes(server: ApiServer, events: Events) -> None:
    events.tell(REF, "BadConfig", "x" * 5000)
    until(lambda: [len(message) for message in messages(server)] == [1024])


def test_what_is_too_much_is_dropped_and_nobody_waits(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MOST_WAITING", 2)
    never_started = Events(api, "node-1")
    for number in range(10):
        never_started.tell(REF, "Held", str(number))
    assert never_started._queue.qsize() == 2
    never_started.stop()
