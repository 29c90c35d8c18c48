"""What crosses between the driver and the process that answers the runtime."""

from dataclasses import fields, replace
from types import MappingProxyType

import pytest

from driver.ledger.entry import Entry, Grant, Owner, Shown, Snapshot
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from driver.nri.messages import MAX_BYTES, UNSENT, Change, Order, change, changed

NODE = NodeCPUs(
    online=frozenset(range(16)),
    reserved=frozenset({0}),
    isolated=frozenset({15}),
    min_shared=1,
    kept=frozenset({1}),
    memoryless=frozenset({1}),
    offline=frozenset({7}),
)
FULL = Entry(
    uid="a",
    namespace="default",
    name="claim-a",
    cpuset=frozenset({4, 5}),
    mems=frozenset({0}),
    pods=frozenset({"pod-a", "pod-b"}),
    owner=Owner(pod_uid="pod-a", container="main"),
    adopted=True,
)


FOREIGN = Foreign({"ns/pod/main": frozenset({2, 3}), "uid/*": frozenset({6})}, known=False, static=True)


def snapshot(*entries, **more):
    return Snapshot(NODE, MappingProxyType({each.uid: each for each in entries}), **more)


def crossed(before, now):
    """The snapshot that arrives, by way of bytes, where the former one is there."""
    order = Order(change=change(before, now))
    return changed(before, Order.model_validate_json(order.encode()).change)


def test_every_part_of_a_snapshot_arrives():
    """A part that is added to the ledger's snapshot has to be sent, too."""
    sent = snapshot(FULL, quarantined=frozenset({9}), version=7, foreign=FOREIGN)
    default = snapshot()
    for each in fields(Snapshot):
        if each.name != "node":
            assert getattr(sent, each.name) != getattr(default, each.name), f"the test forgets {each.name}"
    assert all(getattr(NODE, each.name) for each in fields(NodeCPUs)), "the test forgets a part of the node"
    assert crossed(None, sent) == sent


def test_every_part_of_an_entry_arrives_or_is_known_not_to_be_needed():
    default = Entry(uid="", cpuset=frozenset())
    for name in Entry.model_fields.keys() - UNSENT.keys() - {"api_version", "kind"}:
        assert getattr(FULL, name) != getattr(default, name), f"the test forgets {name}"


def test_only_a_prepare_needs_results_and_placements_and_they_are_not_sent():
    grant = Grant(request="r", pool="node-1", device="cpudev", cpus=2)
    full = FULL.model_copy(
        update={
            "fingerprint": "f",
            "grants": (grant,),
            "engine": "greedy",
            "pod_names": {"pod-a": "a"},
            "pod_claim": "cpus",
            "shown": {"cpudev": Shown(cpus=frozenset({1}), attributes={"n": 2})},
        }
    )
    assert crossed(None, snapshot(full)).entries["a"] == FULL


def test_only_what_has_changed_is_sent():
    others = [Entry(uid=f"u{number}", cpuset=frozenset({number})) for number in (8, 9, 10)]
    before = snapshot(FULL, *others, version=3)
    owner = Owner(pod_uid="pod-b", container="main")
    entries = {
        **before.entries,
        "a": FULL.model_copy(update={"owner": owner}),
        "new": Entry(uid="new", cpuset="12"),
    }
    del entries["u9"]
    now = replace(before, entries=MappingProxyType(entries), version=4)
    step = change(before, now)
    assert ({each.uid for each in step.held}, step.gone, step.node) == ({"a", "new"}, ("u9",), None)
    assert crossed(before, now) == now


def test_what_the_kubelet_has_given_is_sent_when_it_changes():
    before = snapshot(FULL, version=3, foreign=FOREIGN)
    for foreign in (FOREIGN, Foreign()):
        now = replace(before, foreign=foreign, version=4)
        assert (change(before, now).foreign is None) is (foreign is FOREIGN)
        assert crossed(before, now) == now


def test_a_change_of_the_node_is_sent():
    before = snapshot(FULL, version=3)
    now = replace(before, node=replace(NODE, offline=frozenset({8})), version=4)
    assert crossed(before, now) == now


def test_a_first_change_without_a_node_is_refused():
    with pytest.raises(ValueError, match="names no node"):
        changed(None, Change(version=1))


def test_the_largest_ledger_fits_into_a_message():
    uid = "00000000-0000-0000-0000-{:012}".format
    entries = [
        Entry(uid=uid(cpu), cpuset=frozenset({cpu}), pods=frozenset(map(uid, range(cpu, cpu + 256))))
        for cpu in range(1024)
    ]
    assert len(Order(change=change(None, snapshot(*entries))).encode()) < MAX_BYTES
