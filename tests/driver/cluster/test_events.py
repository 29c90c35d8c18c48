import pytest

from driver.cluster import events as events_module
from driver.cluster.api import Api
from driver.cluster.events import QUIET, Events, Memory
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


def test_the_same_is_told_again_after_ten_minutes() -> None:
    memory = Memory()
    assert memory.is_new(TOLD, 100.0)
    assert not memory.is_new(TOLD, 100.0 + QUIET - 1)
    assert memory.is_new(TOLD, 100.0 + QUIET)
    assert not memory.is_new(TOLD, 101.0 + QUIET)


def test_memory_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MOST_REMEMBERED", 3)
    memory = Memory()
    for number in range(4):
        assert memory.is_new(("uid", "Held", str(number)), float(number))
    assert not memory.is_new(("uid", "Held", "3"), 5.0)
    assert memory.is_new(("uid", "Held", "0"), 5.0)


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
