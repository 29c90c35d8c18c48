import threading
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from driver.cluster import listing
from driver.cluster import release as release_module
from driver.cluster.api import Api
from driver.cluster.release import PATIENCE, Releaser
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.ledger.files import Files
from driver.node import NodeCPUs
from driver.ports import ClaimRef
from tests.driver.claims.documents import REF, claim, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.cluster.waiting import until

CLAIM = claim(result("r", "cpudevmachine", "2"), pods=("pod-7",))
NODE = NodeCPUs(frozenset(range(16)), frozenset())
NAMED = Entry(uid=REF.uid, namespace="default", name="cpus", cpuset=frozenset({1, 2}))
NAMELESS = Entry(uid=REF.uid, cpuset=frozenset({1, 2}), adopted=True)


class Runtime:
    """Implements what is asked of ``driver.ports.Runtime`` here: ``carried`` holds uids."""

    def __init__(self) -> None:
        self.carried: set[str] = set()

    def changed(self) -> None: ...

    def settle(self, timeout: float) -> bool:
        return True

    def carries(self, uid: str) -> bool:
        return uid in self.carried


class Case:
    """A releaser with a ledger on disk and a clock that can be moved."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.now, self.runtime = 0.0, Runtime()
        self.released: list[str] = []
        self.files = Files(folder)
        self.ledger = Ledger.open(NODE, self.files)
        self.refusal: RefusedError | None = None
        self.at_release = lambda: None
        self.releaser = Releaser(api, self.ledger, self.runtime, "node-1", self._release, lambda: self.now)

    def hold(self, *entries: Entry) -> None:
        for entry in entries:
            self.ledger.adopt(entry)
            self.ledger.write(entry.uid)

    def after(self, *moments: float) -> list[str]:
        """Who is released once there was a look at each of the moments (seconds)."""
        for self.now in moments:
            self.releaser.look()
        return self.released

    def _release(self, ref: ClaimRef, still: Callable[[], bool]) -> bool:
        """Instead of ``Preparer.release_if``, which ``tests.driver.test_prepare`` tests."""
        if self.refusal is not None:
            raise self.refusal
        self.at_release()
        if not still():
            return False
        self.released.append(ref.uid)
        self.ledger.forget(ref.uid)
        return True


@pytest.fixture
def case(api: Api, tmp_path: Path):
    (tmp_path / "ledger").mkdir()
    found = Case(api, tmp_path / "ledger")
    yield found
    found.releaser.stop()
    found.ledger.close()


def changed(change: Callable[[Any], Any]) -> dict[str, Any]:
    document = deepcopy(CLAIM)
    change(document)
    return document


def test_a_claim_that_is_gone_is_released_after_five_minutes(case: Case) -> None:
    case.hold(NAMED)
    assert case.after(0, 100, PATIENCE - 1) == []
    assert case.after(PATIENCE) == [REF.uid]
    assert case.after(PATIENCE + 60) == [REF.uid]
    assert case.ledger.snapshot.held == frozenset()


def test_a_claim_that_is_there_is_kept(server: ApiServer, case: Case) -> None:
    case.hold(NAMED)
    server.put_claim(CLAIM)
    assert case.after(0, 400, 800) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["metadata"].update(uid="another-uid"),
        lambda document: document["status"].pop("allocation"),
        lambda document: document.pop("status"),
        lambda document: document["status"].pop("reservedFor"),
        lambda document: document["status"]["allocation"]["devices"].pop("results"),
        lambda document: document["status"]["allocation"]["devices"].update(results=5),
        lambda document: document["status"]["allocation"]["devices"]["results"][0].update(driver="gpu.example"),
        lambda document: document["status"]["allocation"]["devices"]["results"][0].update(pool="node-2"),
    ],
    ids=[
        *("other-uid", "deallocated", "no-status", "not-reserved", "no-results", "results-that-are-none"),
        *("other-driver", "other-node"),
    ],
)
def test_a_claim_that_is_no_longer_ours_is_released(
    server: ApiServer, case: Case, change: Callable[[Any], Any]
) -> None:
    case.hold(NAMED)
    server.put_claim(changed(change))
    assert case.after(0, PATIENCE) == [REF.uid]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["status"]["allocation"]["devices"]["results"].insert(
            0, {"driver": "gpu.example"}
        ),
        lambda document: document["status"].update(reservedFor=[{"resource": "podgroups", "uid": "g"}]),
    ],
    ids=["with-another-driver", "reserved-for-a-group"],
)
def test_a_claim_that_is_partly_ours_is_kept(server: ApiServer, case: Case, change: Callable[[Any], Any]) -> None:
    case.hold(NAMED)
    server.put_claim(changed(change))
    assert case.after(0, PATIENCE) == []


@pytest.mark.parametrize(
    ("status", "says_something"),
    [
        (7, False),
        ([], False),
        ("x", False),
        ({"allocation": 7}, True),
        ({"allocation": {"devices": {"results": [7]}}}, True),
    ],
)
def test_nonsense_in_a_claim_does_not_end_the_look(
    server: ApiServer, case: Case, status: Any, says_something: bool
) -> None:
    other = Entry(uid="other", namespace="default", name="other", cpuset=frozenset({3}))
    case.hold(NAMED, other)
    server.put_claim({**CLAIM, "status": status})
    for case.now in (0.0, PATIENCE):
        with nullcontext() if says_something else pytest.raises(RefusedError):
            case.releaser.look()
    assert case.released == ([REF.uid, "other"] if says_something else ["other"])


def test_a_claim_that_comes_back_within_five_minutes_is_kept(server: ApiServer, case: Case) -> None:
    case.hold(NAMED)
    case.after(0, 200)
    server.put_claim(CLAIM)
    case.after(250)
    server.put_claim(changed(lambda document: document["status"].pop("allocation")))
    assert case.after(400, 600) == []
    assert case.after(700) == [REF.uid]


def test_a_claim_is_never_released_while_a_container_carries_it(case: Case) -> None:
    case.hold(NAMED)
    case.runtime.carried.add(REF.uid)
    assert case.after(0, 1000, 2000) == []


def test_five_minutes_count_anew_when_a_container_carries_the_claim(case: Case) -> None:
    case.hold(NAMED)
    case.after(0, 200)
    case.runtime.carried.add(REF.uid)
    case.after(250)
    case.runtime.carried.clear()
    assert case.after(400, 600) == []
    assert case.after(700) == [REF.uid]


def test_five_minutes_count_anew_when_the_claim_was_prepared_anew(case: Case) -> None:
    case.hold(NAMED)
    case.after(0, 200)
    case.ledger.update(NAMED.model_copy(update={"fingerprint": "another"}))
    assert case.after(300, 599) == []
    assert case.after(600) == [REF.uid]


def test_nothing_is_released_while_the_server_is_away(server: ApiServer, case: Case) -> None:
    case.hold(NAMED)
    case.after(0)
    server.away()
    case.now = 1000.0
    with pytest.raises(RefusedError):
        case.releaser.look()
    assert case.released == []


@pytest.mark.parametrize("fault", [(500, b"{}"), (404, b"404 page not found"), (404, b"{}"), (200, b"{}")])
def test_nothing_is_released_on_the_word_of_something_else(
    server: ApiServer, case: Case, fault: tuple[int, bytes]
) -> None:
    case.hold(NAMED)
    server.fault = lambda method, path: fault
    for case.now in (0.0, 400.0):
        with pytest.raises(RefusedError):
            case.releaser.look()
    assert case.released == []


@pytest.mark.parametrize("when", ["while the server is asked", "before it is released"])
@pytest.mark.parametrize(
    "what",
    [
        lambda case: case.ledger.touch(REF.uid),
        lambda case: case.ledger.update(NAMED.model_copy(update={"pods": frozenset({"pod-8"})})),
        lambda case: case.runtime.carried.add(REF.uid),
        lambda case: case.releaser.stop(),
    ],
    ids=["told-again", "of-another-pod", "carried", "stopped"],
)
def test_a_claim_that_is_prepared_meanwhile_is_kept(
    server: ApiServer, case: Case, when: str, what: Callable[[Case], Any]
) -> None:
    """The API server says what held when it was asked; its answer may take long."""
    case.hold(NAMED)
    case.after(0)
    if when == "before it is released":
        case.at_release = lambda: what(case)
    else:
        server.fault = lambda method, path: what(case)
    assert case.after(PATIENCE) == []
    assert REF.uid in case.ledger.snapshot.entries


def test_an_adopted_claim_that_is_prepared_while_all_claims_are_listed_is_kept(
    server: ApiServer, case: Case
) -> None:
    case.hold(NAMELESS)
    case.after(0)
    server.fault = lambda method, path: case.ledger.touch(REF.uid)
    assert case.after(PATIENCE) == []


def test_five_minutes_count_anew_when_the_kubelet_asked_for_the_claim_again(case: Case) -> None:
    case.hold(NAMED)
    case.after(0, 200)
    case.ledger.touch(REF.uid)
    assert case.after(300, 599) == []
    assert case.after(600) == [REF.uid]


def test_claims_are_looked_at_though_the_server_says_nothing_of_others(server: ApiServer, case: Case) -> None:
    case.hold(*(Entry(uid=f"u{cpu}", namespace="n", name=f"c{cpu}", cpuset=frozenset({cpu})) for cpu in range(10)))
    server.fault = lambda method, path: (500, b"{}") if int(path[-1]) % 2 else None
    for case.now in (0.0, PATIENCE):
        with pytest.raises(RefusedError):
            case.releaser.look()
    assert case.released == ["u0", "u2", "u4", "u6", "u8"]


def test_a_server_that_is_away_is_not_asked_for_every_claim(server: ApiServer, case: Case) -> None:
    case.hold(*(Entry(uid=f"u{cpu}", namespace="n", name=f"c{cpu}", cpuset=frozenset({cpu})) for cpu in range(10)))
    server.fault = lambda method, path: (500, b"{}")
    with pytest.raises(RefusedError):
        case.releaser.look()
    assert len(server.requests) == release_module.MOST_REFUSALS


def test_one_that_cannot_be_released_is_tried_again_and_does_not_stop_others(case: Case) -> None:
    other = Entry(uid="other", namespace="default", name="other", cpuset=frozenset({3}))
    case.hold(NAMED, other)
    case.refusal = RefusedError("Disk", "it is full")
    assert case.after(0, PATIENCE) == []
    case.refusal = None
    assert sorted(case.after(PATIENCE + 60)) == sorted([REF.uid, "other"])


def test_an_adopted_claim_is_named_by_the_list_of_all_claims(server: ApiServer, case: Case) -> None:
    case.hold(NAMELESS)
    server.put_claim(CLAIM)
    assert case.after(0, 400) == []
    known = case.ledger.snapshot.entries[REF.uid]
    assert (known.namespace, known.name, known.pods) == ("default", "cpus", {"pod-7"})
    assert known.carriers == ["default/name-of-pod-7"]
    assert case.files.read().entries[REF.uid] == known
    assert sum("/namespaces/" not in path for _, path in server.requests) == 1, "all claims are listed only once"
    server.delete_claim("default", "cpus")
    assert case.after(500, 800) == [REF.uid]


def test_an_adopted_claim_that_nobody_knows_is_released(case: Case) -> None:
    case.hold(NAMELESS)
    assert case.after(0, PATIENCE - 1) == []
    assert case.after(PATIENCE) == [REF.uid]


@pytest.mark.parametrize("page", ["continue", "limit"])
def test_an_adopted_claim_is_kept_when_not_all_claims_are_seen_and_others_do_not_wait(
    server: ApiServer, case: Case, page: str
) -> None:
    other = Entry(uid="other", namespace="default", name="other", cpuset=frozenset({3}))
    case.hold(NAMELESS, other)
    for number in range(listing.PAGE):
        server.put_claim(claim(result("r", "d", "1")) | {"metadata": {"name": f"c{number}", "namespace": "n"}})
    server.put_claim(CLAIM)
    server.fault = lambda method, path: (403, b"{}") if page in path else None
    assert case.after(0, 400) == ["other"]


def test_the_thread_goes_on_after_errors_and_ends_when_told(
    server: ApiServer, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "PERIOD", 0.02)
    case.hold(NAMED)
    server.away()
    case.releaser.start()
    case.now = 1.0
    server.back()
    until(lambda: len(server.requests) > 2)
    case.now = 1000.0
    until(lambda: case.released)
    case.releaser.stop()
    assert "release" not in {thread.name for thread in threading.enumerate()}


def test_a_refusal_is_a_warning_only_when_the_next_look_is_refused_too(
    server: ApiServer, case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(release_module, "PERIOD", 0.01)
    case.hold(NAMED)
    server.put_claim(CLAIM)
    refusals = [(403, b"{}"), None] * 3
    server.fault = lambda method, path: refusals.pop(0) if refusals else None
    case.releaser.start()
    until(lambda: not refusals)
    assert "could not be looked at" not in caplog.text
    server.fault = lambda method, path: (403, b"{}")
    until(lambda: "could not be looked at" in caplog.text)
