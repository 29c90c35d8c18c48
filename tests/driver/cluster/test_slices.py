import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from driver.cluster import api as api_module
from driver.cluster import slices as slices_module
from driver.cluster.api import Api
from driver.cluster.slices import Content, Make, Publisher, content, seen
from driver.conditions import Conditions
from driver.devices.slices import NodeRef
from driver.errors import RefusedError
from tests.driver.cluster.api_server import NODES, SLICES, ApiServer
from tests.driver.cluster.machine import make_of
from tests.driver.cluster.waiting import until

LARGE = "2s8n-128c256t-epyc-7763-nps4"
NODE = NodeRef("node-1", "u")

Publish = Callable[..., Publisher]


@pytest.fixture
def conditions() -> Conditions:
    return Conditions()


@pytest.fixture
def publish(api: Api, conditions: Conditions) -> Iterator[Publish]:
    running: list[Publisher] = []

    def start(make: Make) -> Publisher:
        running.append(Publisher(api, "node-1", make, conditions))
        running[-1].start()
        return running[-1]

    yield start
    for publisher in running:
        publisher.stop()


def watches(server: ApiServer) -> int:
    return sum("watch" in path for _, path in server.requests)


def devices(server: ApiServer) -> list[str]:
    return [device["name"] for each in server.slices() for device in each["spec"]["devices"]]


def generations(server: ApiServer) -> set[int]:
    return {each["spec"]["pool"]["generation"] for each in server.slices()}


def test_slices_are_published_for_the_node_that_owns_them(server: ApiServer, publish: Publish) -> None:
    publish(make_of())
    (found,) = until(server.slices)
    assert [device["name"] for device in found["spec"]["devices"]] == ["cpudevnuma000", "cpudevnuma001"]
    assert found["spec"]["pool"] == {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    node = server.get(NODES, "", "node-1") or {}
    assert found["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_slices_that_vanish_are_published_again(server: ApiServer, publish: Publish) -> None:
    publish(make_of())
    for _ in range(3):
        (found,) = until(server.slices)
        server.delete(SLICES, "", found["metadata"]["name"])
        until(lambda gone=found: [s for s in server.slices() if s["metadata"]["uid"] != gone["metadata"]["uid"]])


def test_all_that_the_kubelet_deletes_at_its_start_is_published_again(server: ApiServer, publish: Publish) -> None:
    publish(make_of(LARGE, cpuDeviceMode="individual"))
    until(lambda: len(devices(server)) == 255 and watches(server))
    server.delete_all(SLICES, "spec.nodeName=node-1")
    until(lambda: len(devices(server)) == 255)
    assert len(server.slices()) == 2


def test_what_vanishes_while_it_is_published_is_published_again(server: ApiServer, publish: Publish) -> None:
    """The kubelet may come up at any moment, so between our list and our watch, too."""
    deleted: list[str] = []

    def delete_meanwhile(method: str, path: str) -> None:
        if method == "GET" and "watch" in path and len(deleted) < 3:
            deleted.append(path)
            server.delete_all(SLICES)

    server.fault = delete_meanwhile
    publish(make_of())
    until(lambda: len(deleted) == 3 and devices(server))
    assert devices(server) == ["cpudevnuma000", "cpudevnuma001"]


def test_a_slice_that_somebody_changes_is_put_right_as_a_new_generation(
    server: ApiServer, publish: Publish
) -> None:
    publish(make_of())
    (found,) = until(server.slices)
    found["spec"]["devices"] = found["spec"]["devices"][:1]
    server.put(SLICES, found)
    until(lambda: len(server.slices()) == 1 and len(devices(server)) == 2)
    assert generations(server) == {2}


def test_a_slice_that_somebody_adds_to_our_pool_is_taken_away(server: ApiServer, publish: Publish) -> None:
    publish(make_of())
    until(server.slices)
    server.put(SLICES, make_of(groupBy="machine")(NODE, 7)[0])
    until(lambda: generations(server) == {8})
    assert devices(server) == ["cpudevnuma000", "cpudevnuma001"]


def test_slices_of_other_nodes_and_drivers_are_not_ours(server: ApiServer, publish: Publish) -> None:
    (other,) = make_of()(NodeRef("node-2", "u"), 3)
    server.put(SLICES, other)
    server.put(SLICES, {**other, "spec": {**other["spec"], "nodeName": "node-1", "driver": "gpu.example.com"}})
    publish(make_of())
    until(lambda: watches(server))
    assert len(server.slices()) == 3
    assert "DELETE" not in {method for method, _ in server.requests}


def test_equal_slices_are_left_alone_after_a_restart(server: ApiServer, publish: Publish) -> None:
    first = publish(make_of())
    before = until(server.slices)
    until(lambda: watches(server))
    first.stop()
    assert server.slices() == before, "they stay when we go"
    server.requests.clear()
    publish(make_of())
    until(lambda: watches(server))
    assert server.slices() == before
    assert {method for method, _ in server.requests} == {"GET"}


def test_other_devices_are_a_new_generation_and_the_old_slices_go(server: ApiServer, publish: Publish) -> None:
    first = publish(make_of())
    until(lambda: watches(server))
    first.stop()
    publish(make_of(groupBy="machine"))
    until(lambda: devices(server) == ["cpudevmachine"])
    assert generations(server) == {2}


def test_half_of_a_new_generation_is_no_pool(server: ApiServer, publish: Publish) -> None:
    make = make_of(LARGE, cpuDeviceMode="individual")
    old, new = make(NODE, 1), make(NODE, 2)
    for each in (old[0], new[1]):
        server.put(SLICES, each)
    publish(make)
    until(lambda: generations(server) == {3} and len(server.slices()) == 2)


def test_more_devices_than_one_slice_holds_come_in_two(server: ApiServer, publish: Publish) -> None:
    publish(make_of(LARGE, cpuDeviceMode="individual"))
    found = until(lambda: server.slices() if len(server.slices()) == 2 else [])
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in found} == {2}
    assert max(len(s["spec"]["devices"]) for s in found) == 128
    assert len(devices(server)) == 255


def test_dropped_fields_withdraw_the_slices_and_the_reason_is_said(
    server: ApiServer, publish: Publish, conditions: Conditions
) -> None:
    first = publish(make_of())
    until(lambda: watches(server))
    first.stop()
    server.drop_consumable = True
    publish(make_of(groupBy="machine"))
    said = until(lambda: conditions.current().get("SlicesWithdrawn"))
    assert "drops allowMultipleAllocations, requestPolicy" in said
    assert "feature gate DRAConsumableCapacity" in said
    until(lambda: not server.slices())


def test_slices_that_lack_something_are_only_tried_and_never_there(
    server: ApiServer, publish: Publish, conditions: Conditions
) -> None:
    server.drop_consumable = True
    publish(make_of())
    until(conditions.current)
    assert all("dryRun=All" in path for method, path in server.requests if method == "POST")
    assert server.slices() == []


def test_a_server_among_several_that_drops_fields_is_found_out_when_it_is_meant(
    server: ApiServer, publish: Publish, conditions: Conditions
) -> None:
    def another(method: str, path: str) -> None:
        server.drop_consumable = method == "POST" and "dryRun" not in path

    server.fault = another
    publish(make_of())
    until(conditions.current)
    until(lambda: not server.slices())


def test_a_server_that_has_learned_the_fields_gets_the_slices(
    server: ApiServer, publish: Publish, conditions: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices_module, "WITHDRAWN", 0.2)
    server.drop_consumable = True
    publish(make_of())
    until(conditions.current)
    server.drop_consumable = False
    until(server.slices)
    until(lambda: not conditions.current())


def test_single_cpus_need_no_consumable_capacity(
    server: ApiServer, publish: Publish, conditions: Conditions
) -> None:
    server.drop_consumable = True
    publish(make_of(cpuDeviceMode="individual"))
    until(lambda: watches(server))
    assert len(devices(server)) == 15
    assert conditions.current() == {}


def test_the_mapping_of_allocatable_cpus_that_is_dropped_names_its_setting(
    api: Api, server: ApiServer, conditions: Conditions
) -> None:
    server.version = "1.37"
    make = make_of(publishNodeAllocatableResourceMapping=True)
    assert Publisher(api, "node-1", make, conditions).publish() is not None
    server.delete_all(SLICES)
    server.dropped = ("nodeAllocatableResources",)
    assert Publisher(api, "node-1", make, conditions).publish() is None
    assert "publishNodeAllocatableResourceMapping: false" in conditions.current()["SlicesWithdrawn"]


def test_slices_that_the_server_refuses_are_withdrawn_with_its_words(
    server: ApiServer, publish: Publish, conditions: Conditions
) -> None:
    def make(node: NodeRef, generation: int) -> list[dict[str, Any]]:
        (document,) = make_of()(node, generation)
        document["spec"]["unheardOf"] = True
        return [document]

    publish(make)
    assert "unheardOf" in until(lambda: conditions.current().get("SlicesWithdrawn"))
    assert server.slices() == []


def test_fields_that_the_server_fills_in_are_no_change(
    api: Api, server: ApiServer, conditions: Conditions
) -> None:
    admit = server.admit

    def fill_in(kind: str, document: dict[str, Any]) -> dict[str, Any]:
        kept = admit(kind, document)
        for device in kept["spec"]["devices"] if kind == SLICES else ():
            device["filledIn"] = "by default"
        return kept

    server.admit = fill_in  # type: ignore[method-assign]
    publisher = Publisher(api, "node-1", make_of(), conditions)
    publisher.publish()
    before = server.slices()
    publisher.publish()
    assert server.slices() == before
    assert generations(server) == {1}


def test_a_server_that_comes_back_gets_the_slices(server: ApiServer, publish: Publish) -> None:
    server.away()
    publish(make_of())
    server.back()
    until(server.slices)


def test_slices_that_vanish_while_the_server_is_away_are_published_again(
    server: ApiServer, publish: Publish
) -> None:
    publish(make_of())
    until(lambda: watches(server))
    server.away()
    server.delete_all(SLICES)
    server.back()
    until(server.slices)


def test_a_connection_that_is_cut_is_made_again(server: ApiServer, publish: Publish) -> None:
    publish(make_of())
    for number in (1, 2, 3):
        until(lambda number=number: watches(server) >= number)
        server.cut()
    server.delete_all(SLICES)
    until(server.slices)


def test_a_history_that_is_gone_is_no_trouble(
    server: ApiServer, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "WATCH", 1)

    def compact_before_watch(method: str, path: str) -> None:
        if "watch" in path and watches(server) < 3:
            server.compact()

    server.fault = compact_before_watch
    publish(make_of())
    until(lambda: watches(server) >= 3)
    server.delete_all(SLICES)
    until(server.slices)


def test_a_name_that_is_taken_is_tried_again(server: ApiServer, publish: Publish) -> None:
    taken = [(409, b'{"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "it exists"}')] * 3
    server.fault = lambda method, path: taken.pop() if method == "POST" and taken else None
    publish(make_of())
    until(server.slices)
    assert taken == []


def test_one_of_two_that_cannot_be_created_leaves_no_half_pool(server: ApiServer, publish: Publish) -> None:
    fails = iter([None, (500, b"{}")])
    server.fault = lambda method, path: next(fails, None) if method == "POST" and "dryRun" not in path else None
    publish(make_of(LARGE, cpuDeviceMode="individual"))
    until(lambda: generations(server) == {2} and len(server.slices()) == 2)


def test_a_node_that_is_not_there_names_the_setting(api: Api, conditions: Conditions) -> None:
    with pytest.raises(RefusedError, match="hostnameOverride"):
        Publisher(api, "node-9", make_of(), conditions).publish()


def test_a_refusal_is_a_warning_only_when_it_lasts(
    server: ApiServer, publish: Publish, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server that has just begun does not know yet what its RBAC rules allow."""
    forbidden = [(403, b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not you"}')]
    refusals = forbidden * 3
    server.fault = lambda method, path: refusals.pop() if refusals else None
    publish(make_of())
    until(lambda: watches(server))
    assert "not you" not in caplog.text
    monkeypatch.setattr(slices_module, "TRANSIENT", 0.05)
    server.fault = lambda method, path: forbidden[0]
    server.cut()
    until(lambda: "not you" in caplog.text)


class Recorded(threading.Event):
    """Keeps how long it was waited for, and waits little."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return super().wait(0.01)


@pytest.mark.parametrize("spoil", ["watch", "resourceslices", "nodes"])
def test_whatever_fails_is_not_tried_again_without_longer_and_longer_pauses(
    server: ApiServer, api: Api, conditions: Conditions, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    monkeypatch.setattr(slices_module.random, "uniform", lambda low, high: high)
    server.fault = lambda method, path: (200, b"") if spoil in path else None
    publisher = Publisher(api, "node-1", make_of(), conditions)
    publisher._stopping = recorded = Recorded()
    publisher.start()
    until(lambda: len(recorded.pauses) >= 10)
    publisher.stop()
    assert recorded.pauses[:9] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert len(server.requests) <= 10 * len(recorded.pauses)


def test_a_watch_that_ends_at_once_is_not_begun_again_without_a_pause(
    server: ApiServer, api: Api, conditions: Conditions
) -> None:
    server.fault = lambda method, path: (200, b"") if "watch" in path else None
    publisher = Publisher(api, "node-1", make_of(), conditions)
    publisher._round()
    assert watches(server) == 1


def test_of_two_publishers_that_disagree_the_one_that_stays_has_its_way(
    server: ApiServer, publish: Publish
) -> None:
    one, other = publish(make_of()), publish(make_of(groupBy="machine"))
    until(lambda: max(generations(server), default=0) >= 3)
    one.stop()
    until(lambda: devices(server) == ["cpudevmachine"])
    other.stop()


def test_order_names_and_generation_do_not_count_as_content() -> None:
    make = make_of(LARGE, cpuDeviceMode="individual")

    def said(*documents: dict[str, Any]) -> Content:
        return content([seen(each) for each in documents])

    one, other = make(NODE, 1), make(NODE, 5)
    assert said(*one) == said(*other[::-1])
    assert said(*one) != said(*one[:1])
    assert said(*one) != said(one[0], other[1])
    assert said(*one) != said(*make(NodeRef("node-2", "u"), 1))


class Shelf:
    """Slices that may change: of a machine with so many cores, as the ledger's change may make it."""

    def __init__(self) -> None:
        self.cores = 4

    def make(self, node: NodeRef, generation: int) -> list[dict[str, Any]]:
        return list(make_of(f"core:{self.cores} cpu:1")(node, generation))


def capacity(server: ApiServer) -> int:
    (device,) = server.slices()[0]["spec"]["devices"]
    return int(device["capacity"]["dra.cpu/cpu"]["value"])


def test_what_is_offered_is_published_again_when_it_changes_and_only_then(
    server: ApiServer, api: Api, conditions: Conditions
) -> None:
    shelf = Shelf()
    publisher = Publisher(api, "node-1", shelf.make, conditions, lambda: shelf.cores)
    publisher.start()
    until(lambda: watches(server))
    for _ in range(20):
        publisher.changed()
    asked = len(server.requests)
    for cores in (3, 8):
        shelf.cores = cores
        publisher.changed()
        until(lambda cores=cores: server.slices() and capacity(server) == cores - 1)
    until(lambda: generations(server) == {3})
    assert [method for method, _ in server.requests[:asked]].count("POST") == 2, "tried and created, once"
    publisher.stop()


def test_what_changes_while_it_is_published_is_published_after_that(
    server: ApiServer, api: Api, conditions: Conditions
) -> None:
    shelf = Shelf()
    publisher = Publisher(api, "node-1", shelf.make, conditions, lambda: shelf.cores)

    def change_meanwhile(method: str, path: str) -> None:
        if method == "POST" and "dryRun" not in path and shelf.cores == 4:
            shelf.cores = 6
            publisher.changed()

    server.fault = change_meanwhile
    publisher.start()
    until(lambda: server.slices() and capacity(server) == 5)
    publisher.stop()


def test_a_watch_that_is_about_to_begin_does_not_hide_a_change(
    server: ApiServer, api: Api, conditions: Conditions
) -> None:
    shelf = Shelf()
    publisher = Publisher(api, "node-1", shelf.make, conditions, lambda: shelf.cores)

    def change_before_watch(method: str, path: str) -> None:
        if "watch" in path and shelf.cores < 8:
            shelf.cores += 1
            publisher.changed()

    server.fault = change_before_watch
    publisher.start()
    until(lambda: server.slices() and capacity(server) == 7)
    publisher.stop()
