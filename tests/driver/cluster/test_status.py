from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from driver.cluster import status as status_module
from driver.cluster.api import Api
from driver.cluster.status import LARGEST_DATA, StatusWriter, prepared
from driver.ledger.entry import Entry, Grant
from driver.ports import ClaimRef
from models import Allocation
from tests.driver.claims.documents import claim, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.cluster.waiting import until

REF = ClaimRef("uid-1", "default", "cpus")
METRICS = {"unevenness": 0, "numa_nodes": 2}


class Clock:
    """Noon, until a test turns it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def grant(request: str = "r", device: str = "cpudevnuma000", **more: Any) -> Grant:
    return Grant(request=request, pool="node-1", device=device, cpus=4, **more)


def entry(*grants: Grant, cpus: str = "0-3", **more: Any) -> Entry:
    made = Allocation(request="r", cpuset="0-1", mems="0", policy="distributed", metrics=METRICS)
    found = {"cpuset": cpus, "allocations": (made,), "engine": "dp", **more}
    return Entry(uid=REF.uid, namespace=REF.namespace, name=REF.name, grants=grants or (grant(),), **found)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusWriter]:
    monkeypatch.setattr(status_module, "FIRST_PAUSE", 0.05)
    writer = StatusWriter(api, clock)
    writer.start()
    yield writer
    writer.stop()


def put(server: ApiServer, *results: dict[str, Any]) -> None:
    document = claim(*results or (result("r", "cpudevnuma000", "4", pool="node-1"),))
    document["metadata"] = {"uid": REF.uid, "namespace": REF.namespace, "name": REF.name}
    server.put_claim(document)


def devices(server: ApiServer) -> list[dict[str, Any]]:
    found = server.get("resourceclaims", REF.namespace, REF.name)
    assert found is not None
    return list(found["status"].get("devices", []))


def ready(server: ApiServer) -> tuple[str, str, str] | None:
    found = devices(server)
    return None if not found else tuple(found[0]["conditions"][0][key] for key in ("status", "reason", "message"))


def patches(server: ApiServer) -> int:
    return sum(method == "PATCH" for method, _ in server.requests)


def written(writer: StatusWriter) -> Callable[[], bool]:
    return lambda: not writer._waiting


def test_a_claim_shows_its_cpus_and_what_has_chosen_them(server: ApiServer, writer: StatusWriter) -> None:
    put(server)
    writer.prepared(entry(mems="0-1"))
    (device,) = until(lambda: devices(server))
    assert (device["driver"], device["pool"], device["device"]) == ("dra.cpu", "node-1", "cpudevnuma000")
    assert device["data"] == {
        "request": "r",
        "cpus": "0-1",
        "numaNodes": "0",
        "policy": "distributed",
        "metrics": METRICS,
        "engine": "dp",
        "claimCPUs": "0-3",
        "memoryNodes": "0-1",
    }
    assert ready(server) == ("True", "Prepared", "CPUs 0-3")


def test_a_refusal_is_shown_with_its_reason_until_the_claim_has_its_cpus(
    server: ApiServer, writer: StatusWriter, clock: Clock
) -> None:
    put(server)
    writer.refused(REF, [grant()], "NotPlaceable", "4 CPUs requested, 2 free")
    until(lambda: ready(server) == ("False", "NotPlaceable", "4 CPUs requested, 2 free"))
    clock.now += timedelta(minutes=1)
    writer.refused(REF, [grant()], "NotPlaceable", "4 CPUs requested, 3 free")
    until(lambda: ready(server) == ("False", "NotPlaceable", "4 CPUs requested, 3 free"))
    assert devices(server)[0]["conditions"][0]["lastTransitionTime"] == "2026-12-01T12:00:00Z"
    writer.prepared(entry())
    until(lambda: ready(server) == ("True", "Prepared", "CPUs 0-3"))
    assert devices(server)[0]["conditions"][0]["lastTransitionTime"] == "2026-12-01T12:01:00Z"


def test_the_same_is_written_once(server: ApiServer, writer: StatusWriter) -> None:
    put(server)
    for _ in range(3):
        writer.prepared(entry())
        until(written(writer))
    writer.prepared(entry(cpus="4-7"))
    until(lambda: ready(server) == ("True", "Prepared", "CPUs 4-7"))
    assert patches(server) == 2


def test_entries_of_other_drivers_stay(server: ApiServer, writer: StatusWriter) -> None:
    other = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    put(server, result("r", "cpudevnuma000", "4", pool="node-1"), {**other, "request": "g"})
    found = server.get("resourceclaims", REF.namespace, REF.name)
    assert found is not None
    found["status"]["devices"] = [other]
    server.put_claim(found)
    writer.prepared(entry())
    until(lambda: len(devices(server)) == 2)
    assert other in devices(server)


def test_shares_of_one_device_are_told_apart(server: ApiServer, writer: StatusWriter) -> None:
    shares = ("8e2dd6c7-0c4a-4d2c-9d0b-000000000001", "8e2dd6c7-0c4a-4d2c-9d0b-000000000002")
    named = list(zip("rs", shares, strict=True))
    put(server, *(result(name, "cpudevnuma000", "2", shareID=share) for name, share in named))
    grants = [grant(name, share_id=share) for name, share in named]
    writer.prepared(entry(*grants))
    until(lambda: [each["shareID"] for each in devices(server)] == list(shares))
    assert [each["data"].get("cpus") for each in devices(server)] == ["0-1", None]


def test_a_claim_that_has_taken_the_place_of_another_is_left_alone(
    server: ApiServer, writer: StatusWriter
) -> None:
    put(server)
    writer.prepared(entry().model_copy(update={"uid": "another"}))
    until(lambda: patches(server) == 1)
    until(written(writer))
    assert devices(server) == []


def test_what_the_server_does_not_answer_is_written_later_and_the_newest_wins(
    server: ApiServer, writer: StatusWriter
) -> None:
    put(server)
    server.fault = lambda method, _: (503, b"{}") if method == "PATCH" else None
    writer.refused(REF, [grant()], "NotPlaceable", "4 CPUs requested, 2 free")
    until(lambda: patches(server) >= 2)
    writer.prepared(entry())
    server.fault = lambda method, path: None
    until(lambda: ready(server) == ("True", "Prepared", "CPUs 0-3"))


def test_where_it_is_not_allowed_that_is_said_once_and_nobody_asks_again_and_again(
    server: ApiServer, writer: StatusWriter, caplog: pytest.LogCaptureFixture
) -> None:
    put(server)
    server.fault = lambda method, _: (403, b"{}") if method == "PATCH" else None
    writer.prepared(entry())
    until(lambda: "do not show their CPUs" in caplog.text)
    for number in range(5):
        writer.prepared(entry(cpus=f"{number + 4}"))
    assert patches(server) == 1
    assert caplog.text.count("do not show their CPUs") == 1


def test_data_that_the_server_would_not_keep_are_left_out() -> None:
    scattered = ",".join(map(str, range(0, 2 * LARGEST_DATA, 2)))
    (device,) = prepared(entry(cpus=scattered)).devices
    assert "data" not in device
    assert "data" in prepared(entry()).devices[0]


def test_claims_without_a_name_are_not_written(server: ApiServer, writer: StatusWriter) -> None:
    writer.prepared(entry().model_copy(update={"name": ""}))
    writer.refused(REF, [], "ApiAway", "nobody answers")
    assert written(writer)()
