import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.cluster.api import Api
from driver.cluster.events import Events
from driver.cluster.release import Releaser
from driver.cluster.slices import Publisher
from driver.conditions import Conditions
from driver.config import Config
from driver.devices.devices import devices_of
from driver.devices.slices import NodeRef, slices
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.entry import Entry
from driver.ledger.files import Files
from driver.node import NodeCPUs
from driver.ports import ClaimRef
from models import BadInputError
from tests.driver.claims.documents import claim, result
from tests.driver.cluster.api_server import CLAIMS, SLICES, ApiServer
from topologies import catalog, synthetic

REF = ClaimRef("6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11", "default", "cpus")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer, tmp_path: Path) -> Api:
    return Api.connect(str(server.kubeconfig(tmp_path / "kubeconfig")))


def until(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + 20
    while not (found := true()):
        assert time.monotonic() < end, "it did not become so in 20 s"
        time.sleep(0.02)
    return found


def make_of(name: str = "socket:2 numa:1 core:4 cpu:2", **settings: Any) -> Callable[[NodeRef, int], list[Any]]:
    topology = catalog.read(name) if name in catalog.names() else synthetic.build(name)
    found = devices_of(Config.model_validate(settings), topology, NodeCPUs.of(topology))
    return lambda node, generation: slices(found, node, generation)


@pytest.fixture
def publish(api: Api) -> Iterator[Callable[..., Conditions]]:
    running: list[Publisher] = []

    def start(make: Callable[[NodeRef, int], list[Any]]) -> Conditions:
        conditions = Conditions()
        running.append(Publisher(api, "node-1", make, conditions))
        running[-1].start()
        return conditions

    yield start
    for publisher in running:
        publisher.stop()


def test_a_claim_is_read_by_name_and_none_is_no_error(server: ApiServer, api: Api) -> None:
    document = claim(result("r", "cpudevmachine", "4"))
    server.put_claim(document)
    found = api.get("default", "cpus")
    assert found is not None
    assert found["status"] == document["status"]
    assert api.get("default", "other") is None


@pytest.mark.parametrize(
    "fault",
    [
        (500, b"{}"),
        (200, b"no json"),
        (200, b"[]"),
        (200, b'{"metadata": '),
        (404, b"no json"),
        (403, b'{"kind": "Status", "code": 403, "message": "no"}'),
        (200, b"[" * 200_000),
    ],
)
def test_a_server_that_answers_nonsense_is_away(server: ApiServer, api: Api, fault: tuple[int, bytes]) -> None:
    server.fault = lambda method, path: fault
    with pytest.raises(RefusedError) as refused:
        api.get("default", "cpus")
    assert refused.value.reason == "ApiAway"


def test_a_server_that_is_away_is_said_to_be_and_asked_again_later(server: ApiServer, api: Api) -> None:
    server.put_claim(claim(result("r", "cpudevmachine", "4")))
    server.away()
    with pytest.raises(RefusedError, match="the API server does not do it"):
        api.get("default", "cpus")
    server.back()
    assert api.get("default", "cpus") is not None


def test_a_kubeconfig_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no access to the API server"):
        Api.connect(str(tmp_path / "missing"))
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(BadInputError, match="no access to the API server"):
        Api.connect(str(tmp_path / "bad"))


def test_slices_are_published_for_the_node_that_owns_them(server: ApiServer, publish: Any) -> None:
    publish(make_of())
    (found,) = until(server.slices)
    assert [device["name"] for device in found["spec"]["devices"]] == ["cpudevnuma000", "cpudevnuma001"]
    assert found["spec"]["pool"] == {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    node = server.get("nodes", "", "node-1") or {}
    assert found["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_slices_that_vanish_are_published_again(server: ApiServer, publish: Any) -> None:
    publish(make_of())
    for _ in range(3):
        (found,) = until(server.slices)
        server.delete(SLICES, "", found["metadata"]["name"])
        until(lambda gone=found: [s for s in server.slices() if s["metadata"]["uid"] != gone["metadata"]["uid"]])


def test_a_slice_that_somebody_changes_is_put_right_as_a_new_generation(server: ApiServer, publish: Any) -> None:
    publish(make_of())
    (found,) = until(server.slices)
    found["spec"]["devices"] = found["spec"]["devices"][:1]
    server.put(SLICES, found)
    (again,) = until(
        lambda: [s for s in server.slices() if len(s["spec"]["devices"]) == 2 and len(server.slices()) == 1]
    )
    assert again["spec"]["pool"]["generation"] == 2


def test_equal_slices_are_left_alone_after_a_restart(server: ApiServer, publish: Any) -> None:
    publish(make_of())
    before = until(server.slices)
    server.requests.clear()
    publish(make_of())
    until(lambda: sum("watch" in path for _, path in server.requests))
    assert server.slices() == before
    assert {method for method, _ in server.requests} == {"GET"}


def test_other_devices_are_a_new_generation_and_the_old_slices_go(server: ApiServer, publish: Any) -> None:
    publish(make_of())
    until(server.slices)
    publish(make_of(groupBy="machine"))
    until(lambda: [s["spec"]["devices"][0]["name"] for s in server.slices()] == ["cpudevmachine"])
    assert server.slices()[0]["spec"]["pool"]["generation"] >= 2


def test_more_devices_than_one_slice_holds_come_in_two(server: ApiServer, publish: Any) -> None:
    publish(make_of("2s8n-128c256t-epyc-7763-nps4", cpuDeviceMode="individual"))
    found = until(lambda: server.slices() if len(server.slices()) == 2 else [])
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in found} == {2}
    assert sum(len(s["spec"]["devices"]) for s in found) == 255


def test_dropped_fields_withdraw_the_slices_and_the_reason_is_said(server: ApiServer, publish: Any) -> None:
    server.drop_consumable = True
    conditions = publish(make_of())
    until(lambda: conditions.current())
    assert "DRAConsumableCapacity" in conditions.current()["SlicesWithdrawn"]
    until(lambda: not server.slices())


def test_single_cpus_need_no_consumable_capacity(server: ApiServer, publish: Any) -> None:
    server.drop_consumable = True
    conditions = publish(make_of(cpuDeviceMode="individual"))
    until(server.slices)
    assert conditions.current() == {}


def test_a_server_that_comes_back_gets_the_slices(server: ApiServer, publish: Any) -> None:
    server.away()
    publish(make_of())
    server.back()
    until(server.slices)


def test_an_event_is_told_once_and_other_ones_too(server: ApiServer, api: Api) -> None:
    events = Events(api, "node-1")
    events.start()
    for _ in range(5):
        events.tell(REF, "NotPlaceable", "10 CPUs asked, 8 free")
    events.tell(REF, "NotPlaceable", "10 CPUs asked, 7 free")
    events.tell(ClaimRef("nameless"), "Held", "nobody can be told")
    until(lambda: len(server.events()) == 2)
    first = server.events()[0]
    assert (first["reason"], first["message"], first["type"]) == (
        "NotPlaceable",
        "10 CPUs asked, 8 free",
        "Warning",
    )
    assert first["involvedObject"]["uid"] == REF.uid
    assert first["metadata"]["namespace"] == "default"
    events.stop()


class Runtime:
    def __init__(self) -> None:
        self.carried: set[str] = set()

    def changed(self) -> None: ...

    def settle(self, timeout: float) -> bool:
        return True

    def carries(self, uid: str) -> bool:
        return uid in self.carried


class Release:
    """A releaser with a clock that can be moved."""

    def __init__(self, api: Api, folder: Path, entry: Entry) -> None:
        self.now, self.released, self.runtime = 0.0, list[str](), Runtime()
        self.ledger = Ledger.open(NodeCPUs(frozenset(range(8)), frozenset()), Files(folder))
        self.ledger.adopt(entry)
        self.releaser = Releaser(api, self.ledger, self.runtime, "node-1", self._release, lambda: self.now)

    def _release(self, ref: ClaimRef) -> None:
        self.released.append(ref.uid)

    def after(self, *moments: float) -> list[str]:
        for self.now in moments:
            self.releaser.look()
        return self.released


@pytest.fixture
def release(api: Api, tmp_path: Path) -> Release:
    entry = Entry(uid=REF.uid, namespace="default", name="cpus", cpuset=frozenset({1, 2}))
    (tmp_path / "ledger").mkdir()
    return Release(api, tmp_path / "ledger", entry)


def test_a_claim_that_is_gone_is_released_after_five_minutes(release: Release) -> None:
    assert release.after(0, 100, 299) == []
    assert release.after(300) == [REF.uid]


def test_a_claim_that_is_there_is_kept(server: ApiServer, release: Release) -> None:
    server.put_claim(claim(result("r", "cpudevmachine", "2")))
    assert release.after(0, 400, 800) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["metadata"].update(uid="another-uid"),
        lambda document: document["status"].pop("allocation"),
        lambda document: document["status"]["allocation"]["devices"]["results"][0].update(
            driver="gpu.example.com"
        ),
        lambda document: document["status"]["allocation"]["devices"]["results"][0].update(pool="node-2"),
    ],
    ids=["other-uid", "deallocated", "other-driver", "other-node"],
)
def test_a_claim_that_is_no_longer_ours_is_released(
    server: ApiServer, release: Release, change: Callable[[Any], Any]
) -> None:
    document = claim(result("r", "cpudevmachine", "2"))
    change(document)
    server.put_claim(document)
    assert release.after(0, 300) == [REF.uid]


def test_five_minutes_count_anew_when_a_container_carries_the_claim(release: Release) -> None:
    release.after(0, 200)
    release.runtime.carried.add(REF.uid)
    release.after(250)
    release.runtime.carried.clear()
    assert release.after(400, 600) == []
    assert release.after(700) == [REF.uid]


def test_nothing_is_released_while_the_server_is_away(server: ApiServer, release: Release) -> None:
    release.after(0)
    server.away()
    release.now = 1000.0
    with pytest.raises(RefusedError):
        release.releaser.look()
    assert release.released == []


def test_an_adopted_claim_is_named_by_the_list_of_all_claims(server: ApiServer, api: Api, tmp_path: Path) -> None:
    entry = Entry(uid=REF.uid, cpuset=frozenset({1, 2}), adopted=True)
    (tmp_path / "ledger").mkdir()
    release = Release(api, tmp_path / "ledger", entry)
    server.put_claim(claim(result("r", "cpudevmachine", "2"), pods=("pod-7",)))
    assert release.after(0, 400) == []
    known = release.ledger.snapshot.entries[REF.uid]
    assert (known.namespace, known.name, known.pods) == ("default", "cpus", {"pod-7"})
    server.delete(CLAIMS, "default", "cpus")
    assert release.after(500, 800) == [REF.uid]
