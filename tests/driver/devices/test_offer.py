"""What is promised of devices, whoever has CPUs: by tables, and by filling nodes up."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.devices.devices import devices_of
from driver.devices.offer import Listing, Offer
from driver.devices.slices import slices
from driver.errors import RefusedError
from driver.ledger.entry import Entry, Grant, Snapshot
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from models import Topology, parse_cpuset
from tests.driver.bench import Bench
from tests.driver.claims.documents import result
from tests.driver.devices.api_rules import check_pool
from tests.driver.devices.nodes import NODE, devices, numbers
from tests.driver.scheduler import Scheduler
from topologies import catalog, synthetic

MACHINE = synthetic.build("socket:2 numa:2 l3:1 core:2 cpu:2")
"""16 CPUs: CPU n and n + 8 are siblings, NUMA node 0 has CPUs 0, 1, 8 and 9, node 1 has 2, 3, 10 and 11."""

GROUPINGS: dict[str, dict[str, Any]] = {
    "machine": {"groupBy": "machine"},
    "socket": {"groupBy": "socket"},
    "numanode": {"groupBy": "numanode"},
    "individual": {"cpuDeviceMode": "individual"},
}


def held(cpus: str, *grants: tuple[str, int], pool: str = "node-1", adopted: bool = False) -> Entry:
    """A live claim, with what it has of devices."""
    granted = tuple(Grant(request="r", pool=pool, device=device, cpus=count) for device, count in grants)
    return Entry(uid=f"u{cpus}", cpuset=cpus, grants=granted, adopted=adopted)  # type: ignore[arg-type]


def offer_of(topology: Topology = MACHINE, reserved: str = "0", **how: Any) -> tuple[Offer, NodeCPUs]:
    made = {key: how.pop(key) for key in ("min_shared", "isolated") if key in how}
    found = devices(topology, reserved, **made, **how)
    machine = topology.model_copy(update={"reserved": parse_cpuset(reserved)})
    node = NodeCPUs.of(machine, parse_cpuset(made.get("isolated", "")), made.get("min_shared", 0))
    return Offer(found.devices, topology, "node-1", bool(how.get("fullCores"))), node


def offered(*entries: Entry, quarantined: str = "", foreign: Foreign | None = None, **how: Any) -> dict[str, Any]:
    """Capacities by the devices' names; CPUs where devices are those."""
    offer, node = offer_of(**how)
    more = {} if foreign is None else {"foreign": foreign}
    snapshot = Snapshot(node, {each.uid: each for each in entries}, parse_cpuset(quarantined), **more)
    found = offer.now(snapshot)
    check_pool(slices(found, NODE, 1))
    return {each.name: each.capacity.value if each.capacity else min(each.cpus) for each in found}


def numa(*values: int) -> dict[str, int]:
    return {f"cpudevnuma{index:03d}": value for index, value in enumerate(values) if value}


def test_claims_on_the_devices_themselves_change_nothing() -> None:
    """The scheduler takes them off by itself."""
    assert offered() == numa(3, 4, 4, 4)
    assert offered(held("1,8", ("cpudevnuma000", 2)), held("4-5", ("cpudevnuma002", 2))) == numa(3, 4, 4, 4)
    assert offered(held("1-2,8,10", ("cpudevnuma000", 2), ("cpudevnuma001", 2))) == numa(3, 4, 4, 4)
    assert offered(held("1-5,8", ("cpudevmachine", 6)), groupBy="machine") == {"cpudevmachine": 15}


@pytest.mark.parametrize(
    ("before", "now", "left"),
    [
        (("cpudevmachine", 6), "numanode", numa(1, 2, 2, 4)),
        (("cpudevmachine", 6), "socket", {"cpudevsocket000": 3, "cpudevsocket001": 6}),
        (("cpudevsocket000", 6), "machine", {"cpudevmachine": 9}),
        (("cpudevnuma000", 6), "machine", {"cpudevmachine": 9}),
        (("cpudevnuma000", 6), "socket", {"cpudevsocket000": 3, "cpudevsocket001": 6}),
        (("cpudev000", 6), "numanode", numa(1, 2, 2, 4)),
        (("cpudevmachine", 6), "individual", [3, 5, 6, 7, 9, 11, 12, 14, 15]),
    ],
    ids=str,
)
def test_cpus_of_claims_on_other_devices_are_taken_off(before: tuple[str, int], now: str, left: Any) -> None:
    """CPUs 1, 8 of NUMA node 0, 2 and 10 of node 1, 4 and 13 of node 2; CPU 0 is reserved."""
    found = offered(held("1-2,4,8,10,13", before), **GROUPINGS[now])
    assert found == left if isinstance(left, dict) else sorted(found.values()) == left


def test_a_device_is_left_out_when_others_have_all_of_it_and_stays_while_a_claim_on_it_lives() -> None:
    old = held("2-3,10-11", ("cpudevmachine", 4))
    assert offered(old) == numa(3, 0, 4, 4)
    own, old = held("10-11", ("cpudevnuma001", 2)), held("2-3", ("cpudevmachine", 2))
    assert offered(own, old) == numa(3, 2, 4, 4)


def test_single_cpus_of_live_claims_stay_and_those_of_other_claims_go() -> None:
    names = offered(**GROUPINGS["individual"])
    name = next(name for name, cpu in names.items() if cpu == 3)
    found = offered(held("3", (name, 1)), held("4-5", ("cpudevmachine", 2)), **GROUPINGS["individual"])
    assert found == {name: cpu for name, cpu in names.items() if cpu not in (4, 5)}


def test_files_in_quarantine_take_their_cpus_off() -> None:
    assert offered(quarantined="4-5,12-13,15") == numa(3, 4, 0, 3)


def test_another_nodes_devices_of_the_same_name_are_others() -> None:
    assert offered(held("4-5", ("cpudevnuma002", 2), pool="node-2")) == numa(3, 4, 2, 4)


def test_a_claim_that_was_taken_over_counts_as_one_on_the_devices_of_its_cpus_until_it_is_known() -> None:
    assert offered(held("4-5", adopted=True)) == numa(3, 4, 4, 4)
    assert offered(held("4-5", ("cpudevmachine", 2))) == numa(3, 4, 2, 4)


def test_a_claim_that_holds_cpus_which_are_reserved_since_has_not_less_of_its_device() -> None:
    """Four of its CPUs are the device's no more: what is left of it is left all the same."""
    assert offered(held("0-1,8-9", ("cpudevsocket000", 4)), reserved="0-1,8-9", groupBy="socket") == {
        "cpudevsocket000": 8,
        "cpudevsocket001": 8,
    }


@pytest.mark.parametrize(
    ("foreign", "how"),
    [
        (Foreign({"ns/p/c": frozenset({6, 7})}), "given"),
        (Foreign(static=True), "static"),
        (Foreign(known=False), "unknown"),
    ],
    ids=str,
)
def test_beside_a_static_cpu_manager_nothing_is_offered_and_devices_of_live_claims_stay(
    foreign: Foreign, how: str
) -> None:
    own = held("1,8", ("cpudevnuma000", 2))
    assert offered(own, foreign=foreign) == numa(2)
    assert offered(foreign=foreign) == {}
    names = offered(**GROUPINGS["individual"])
    name = next(name for name, cpu in names.items() if cpu == 3)
    assert offered(held("3", (name, 1)), foreign=foreign, **GROUPINGS["individual"]) == {name: 3}


@pytest.mark.parametrize(
    ("cpus", "left"),
    [("2", numa(0, 2, 4, 4)), ("2-3,10", numa(0, 0, 4, 4)), ("1", numa(0, 4, 4, 4)), ("4,14", numa(0, 4, 2, 2))],
)
def test_where_whole_cores_are_the_rule_others_strand_the_siblings(cpus: str, left: dict[str, int]) -> None:
    old = held(cpus, ("cpudevmachine", 1))
    assert offered(old, reserved="0-1", fullCores=True) == left


def test_what_a_live_claim_has_of_a_device_may_be_less_than_a_step() -> None:
    """It is from before whole cores were the rule; the sibling is nobody's."""
    own, old = held("2", ("cpudevnuma001", 1)), held("3", ("cpudevmachine", 1))
    assert offered(own, old, reserved="0-1", fullCores=True) == numa(0, 1, 4, 4)
    own = held("2-3,10", ("cpudevnuma001", 3))
    assert offered(own, reserved="0-1", fullCores=True) == numa(0, 3, 4, 4)


@pytest.mark.parametrize(
    ("entries", "how", "left"),
    [
        ((), {"min_shared": 1}, numa(3, 4, 4, 4)),
        ((held("9", ("cpudevnuma000", 1)),), {"min_shared": 1}, numa(3, 4, 4, 4)),
        ((held("0-1,8-9", ("cpudevmachine", 4)),), {"min_shared": 1}, numa(0, 3, 4, 4)),
        ((held("0-1,8", ("cpudevmachine", 3)),), {"min_shared": 1}, numa(0, 4, 4, 4)),
        ((held("0-15", ("cpudevmachine", 16)),), {"min_shared": 1}, {}),
        ((held("0-14", ("cpudevmachine", 15)),), {"min_shared": 2}, {}),
        ((held("0-2,4-15", ("cpudevmachine", 15)),), {"min_shared": 1}, {}),
        ((held("4", ("cpudevmachine", 1)),), {"min_shared": 1, "fullCores": True}, numa(4, 4, 2, 4)),
        ((held("0-1,8-9", ("cpudevmachine", 4)),), {"min_shared": 1, "fullCores": True}, numa(0, 2, 4, 4)),
        ((), {"min_shared": 2, "isolated": "0-3,8-11"}, numa(4, 4, 2, 4)),
        ((held("4-5,12-13", ("cpudevmachine", 4)),), {"min_shared": 1, "isolated": "0-3,8-11"}, numa(4, 4, 0, 3)),
    ],
    ids=lambda value: "+".join(each.uid for each in value) if isinstance(value, tuple) else str(value),
)
def test_cpus_that_must_stay_shared_are_taken_off_where_they_are_left(
    entries: tuple[Entry, ...], how: dict[str, Any], left: dict[str, int]
) -> None:
    assert offered(*entries, reserved="", **how) == left


def test_the_kubelet_hears_of_devices_that_are_offered_and_of_those_that_live_claims_go_by() -> None:
    offer, node = offer_of()
    entries = {"a": held("2-3,10-11", ("cpudevmachine", 4)), "b": held("4", ("cpudevnuma002", 1))}
    listing = Listing(offer, lambda: Snapshot(node, entries))
    names = ["cpudevnuma000", "cpudevnuma002", "cpudevnuma003", "cpudevmachine"]
    assert [each.name for each in listing] == names
    entries.clear()
    assert [each.name for each in listing] == list(numa(3, 4, 4, 4))


@pytest.mark.parametrize("settings", [*GROUPINGS.values(), {"fullCores": True}], ids=str)
def test_an_empty_node_offers_what_its_devices_have(settings: dict[str, Any]) -> None:
    for name in catalog.names():
        topology = catalog.read(name)
        offer, node = offer_of(topology, "0-1", **settings)
        assert offer.now(Snapshot(node, {})) == tuple(devices(topology, "0-1", **settings))


# Filling a node


class Filled:
    """A node and a scheduler that sends it claims, as long as it finds room in the slices."""

    def __init__(self, folder: Path, topology: Topology, dice: random.Random) -> None:
        self.folder, self.topology, self.dice = folder, topology, dice
        self.scheduler, self.uids, self.documents = Scheduler(), count(), dict[tuple[str, str], Any]()
        self.names: dict[str, int] = {}

    def come_up(self, **how: Any) -> None:
        """The driver starts, perhaps with other devices than before."""
        self.bench = Bench(self.folder, self.topology, sync=lambda _: None, **how)
        self.bench.shelf.documents = self.documents
        former = self.names if self.scheduler.allocated else {}
        bench = self.bench
        bench.devices = devices_of(bench.config, bench.topology, bench.node, former)
        if bench.config.cpu_device_mode == "individual":
            self.names = former | numbers(bench.devices)
        whole = bool(self.bench.config.full_cores)
        self.offer = Offer(self.bench.devices.devices, self.topology, "node-1", whole)

    def now(self) -> tuple[Any, ...]:
        return self.offer.now(self.bench.ledger.snapshot)

    def choices(self) -> list[tuple[str, int]]:
        documents = slices(self.now(), NODE, 1)
        check_pool(documents)
        return list(self.scheduler.choices(documents))

    def fill(self, most: int = 1000) -> None:
        """Never is a claim refused that the scheduler has sent here. None of them changes what is offered."""
        before = self.now()
        for _ in range(most):
            if not (choices := self.choices()):
                return
            self.claim(*self.dice.choice(choices))
            assert self.now() == before, "slices would be published again for an ordinary claim"

    def claim(self, device: str, cpus: int) -> None:
        uid = f"u{next(self.uids)}"
        ref = self.bench.claim(uid, cpus, device=device)
        if self.bench.config.cpu_device_mode == "individual":
            document = self.documents[ref.namespace, ref.name]
            document["status"]["allocation"]["devices"]["results"] = [result("r0", device)]
        try:
            assert len(self.bench.prepare(ref)) == cpus
        except RefusedError as error:
            raise AssertionError(
                f"{cpus} CPUs of {device}: {error}; allocated: {self.scheduler.allocated}"
            ) from None
        self.scheduler.allocated[uid] = device, cpus

    def release(self, share: float) -> None:
        for uid in [uid for uid in self.scheduler.allocated if self.dice.random() < share]:
            self.bench.preparer.unprepare(self.bench.claim(uid, 1))
            del self.scheduler.allocated[uid]

    def is_full(self) -> bool:
        """Whether the smallest claim on each of the devices is refused."""
        for device in self.bench.devices:
            with pytest.raises((RefusedError, AssertionError)):
                self.claim(device.name, device.capacity.step if device.capacity else 1)
        return True


SHAPES = {"smt": MACHINE, "plain": synthetic.build("socket:2 numa:2 core:4 cpu:1")}
WAYS: list[dict[str, Any]] = [
    {**grouping, **rule}
    for grouping in GROUPINGS.values()
    for rule in ({}, {"reservedCPUs": "0"}, {"reservedCPUs": "0-1", "minSharedCPUs": 2}, {"fullCores": True})
    if not ("cpuDeviceMode" in grouping and "fullCores" in rule)
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.lists(st.sampled_from(WAYS), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_whatever_was_grouped_how_before_all_that_is_promised_can_be_given_and_no_more_could(
    shape: str, ways: list[dict[str, Any]], isolates: bool, seed: int
) -> None:
    dice = random.Random(seed)
    with TemporaryDirectory() as folder:
        node = Filled(Path(folder), SHAPES[shape], dice)
        for way in ways:
            node.come_up(**way, isolated=frozenset({5, 13}) if isolates else frozenset())
            node.fill(dice.randrange(6))
            node.release(0.3)
        promised = sum(map(node.scheduler.left, published(node)))
        before = sum(cpus for _, cpus in node.scheduler.allocated.values())
        node.fill()
        given_now = sum(cpus for _, cpus in node.scheduler.allocated.values()) - before
        assert given_now == promised
        assert node.is_full()
        node.bench.ledger.close()


def published(node: Filled) -> list[dict[str, Any]]:
    return [device for each in slices(node.now(), NODE, 1) for device in each["spec"]["devices"]]


@pytest.mark.parametrize("seed", range(8))
def test_cores_of_several_sizes_are_never_promised_twice(tmp_path: Path, seed: int) -> None:
    """What is left of them may be less than a step, and then is nobody's."""
    node = Filled(tmp_path, catalog.read("1s1n-16c22t-core-ultra-7-155h"), random.Random(seed))
    machine: Callable[..., Any] = node.come_up
    for way in ({"groupBy": "machine"}, {"groupBy": "numanode", "fullCores": True}):
        machine(**way)
        node.fill(3)
        node.release(0.2)
    node.fill()
