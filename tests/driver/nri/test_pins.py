"""Which CPUs a container gets, and when it must not run."""

import re
from dataclasses import replace

import pytest

from driver.ledger.entry import Owner
from driver.nri import pins
from driver.nri.container import Container, Pending, Stage
from driver.nri.pins import InTheWayError, NotReservedError, RefusedContainerError
from driver.nri.plan import Plan
from driver.nri.sight import Pin, Sight
from models import to_mask
from tests.driver.nri.book import Book

POOL = to_mask({1, 2, 3})
HELD = to_mask({4, 5})
U, V = "DRA_CPUSET_u", "DRA_CPUSET_v"


def cpus(*numbers):
    return to_mask(numbers)


@pytest.fixture
def book():
    """CPU 0 is reserved; claim ``u`` of pod ``a`` holds 4 and 5, claim ``v`` of pods ``a`` and ``b`` 6 and 7."""
    book = Book(range(8))
    book.hold("u", {4, 5}, mems={1}, pods=("a",))
    book.hold("v", {6, 7}, pods=("a", "b"))
    return book


def go_down(book, down):
    node = replace(book.snapshot.node, offline=frozenset(down))
    book.snapshot = replace(book.snapshot, node=node)


def plan(book):
    return Plan(book.snapshot)


def sight(pod="a", *variables):
    return Sight(pod, pod, "main", sandbox=pod, variables=tuple(variables))


def container(pod="a", stage=Stage.RUNNING, may=POOL, **more):
    return Container(sight(pod), stage, may, **more)


def nobody(entry, sight):
    return None


DESIRED = {
    "without a claim it gets the pool": ({}, Pin(POOL)),
    "with one it gets the claim's CPUs and memory nodes": ({"u": HELD}, Pin(HELD, cpus(1))),
    "with one that binds no memory, CPUs only": ({"v": cpus(6, 7)}, Pin(cpus(6, 7))),
    "with two it gets the CPUs of both": ({"u": HELD, "v": cpus(6, 7)}, Pin(cpus(4, 5, 6, 7), cpus(1))),
    "a claim that is gone gives nothing": ({"w": HELD}, Pin(POOL)),
    "nor one that holds other CPUs by now": ({"u": cpus(4)}, Pin(POOL)),
    "a claim that is left counts": ({"u": HELD, "w": cpus(3)}, Pin(HELD, cpus(1))),
}


@pytest.mark.parametrize(("claims", "pin"), DESIRED.values(), ids=DESIRED)
def test_what_a_container_gets(book, claims, pin):
    assert pins.desired(container(claims=claims), plan(book)) == pin


OFFLINE = {
    "a claim does without a CPU that is down": ({4}, {"u": HELD}, cpus(5)),
    "unless all are, which the kernel refuses": ({4, 5}, {"u": HELD}, HELD),
    "the pool does without it": ({3}, {}, cpus(1, 2)),
    "without any the pool is what is reserved": ({1, 2, 3}, {}, cpus(0)),
    "and nothing where that is down, too": ({0, 1, 2, 3}, {}, 0),
}


@pytest.mark.parametrize(("down", "claims", "mask"), OFFLINE.values(), ids=OFFLINE)
def test_cpus_that_are_down(book, down, claims, mask):
    go_down(book, down)
    assert pins.desired(container(claims=claims), plan(book)).cpus == mask


NAMED = {
    "no variable names no claim": (sight(), {}),
    "one names one": (sight("a", (U, "4-5")), {"u": HELD}),
    "the order and form of the list do not matter": (sight("a", (U, "5,4")), {"u": HELD}),
    "twice the same is once": (sight("a", (U, "4-5"), (U, "5,4")), {"u": HELD}),
    "two name two": (sight("a", (V, "6-7"), (U, "4-5")), {"u": HELD, "v": cpus(6, 7)}),
    "another pod may carry what is reserved for it": (sight("b", (V, "6-7")), {"v": cpus(6, 7)}),
}


@pytest.mark.parametrize(("seen", "claims"), NAMED.values(), ids=NAMED)
def test_which_claims_a_container_carries(book, seen, claims):
    assert pins.claims_of(seen, plan(book), nobody) == claims


WRONG = {
    "a claim that is not prepared": (sight("a", ("DRA_CPUSET_w", "4-5")), "not prepared on this node"),
    "no uid": (sight("a", ("DRA_CPUSET_a/b", "4-5")), "names no claim"),
    "other CPUs": (sight("a", (U, "4")), "says CPUs 4, but the claim holds 4-5"),
    "no CPUs": (sight("a", (U, "")), "says CPUs none"),
    "no list": (sight("a", (U, "x")), "not a CPU number"),
    "a list that is too long": (sight("a", (U, "4-5," * 10)), "longer than any list"),
    "two values": (sight("a", (U, "4-5"), (U, "4")), "twice with different values"),
    "another pod's claim": (sight("b", (U, "4-5")), "not reserved for this pod"),
    "one wrong among right ones": (sight("a", (V, "6-7"), (U, "4")), "says CPUs 4"),
    "too many": (sight("a", *((f"{U}{n}", "4-5") for n in range(257))), "more than 256 claims"),
}


@pytest.mark.parametrize(("seen", "why"), WRONG.values(), ids=WRONG)
def test_a_container_that_names_claims_wrongly_is_refused(book, seen, why):
    with pytest.raises(RefusedContainerError, match=why):
        pins.claims_of(seen, plan(book), nobody)


def test_only_a_pod_that_is_not_known_to_carry_the_claim_is_worth_a_look_at_it(book):
    with pytest.raises(NotReservedError) as refusal:
        pins.claims_of(sight("b", (U, "4-5")), plan(book), nobody)
    assert refusal.value.uid == "u"
    with pytest.raises(RefusedContainerError) as refusal:
        pins.claims_of(sight("a", (U, "4-5")), plan(book), lambda *_: Owner(pod_uid="b", container="main"))
    assert not isinstance(refusal.value, NotReservedError)


ADOPTED = {
    "a running container may carry it": ({"pods": ()}, True, True),
    "a new one may not": ({"pods": ()}, False, False),
    "unless it owns it": ({"pods": (), "owner": Owner(pod_uid="a", container="main")}, False, True),
    "another owner is another": ({"pods": (), "owner": Owner(pod_uid="a", container="x")}, False, False),
    "once its pods are known they alone may": ({"pods": ("b",)}, True, False),
}


@pytest.mark.parametrize(("known", "found", "carries"), ADOPTED.values(), ids=ADOPTED)
def test_a_claim_that_was_taken_over(book, known, found, carries):
    book.hold("u", {4, 5}, adopted=True, **known)
    try:
        assert pins.claims_of(sight("a", (U, "4-5")), plan(book), nobody, found=found) == {"u": HELD}
        assert carries
    except NotReservedError:
        assert not carries


WAYS = {
    "one on its own CPUs is not": (container("x"), False),
    "one that may run on the claim's is": (container("x", may=POOL | cpus(5)), True),
    "one that was told a mask with them is, until that has arrived": (
        container("x", pending=(Pending("answer", cpus(4), 0.0),)),
        True,
    ),
    "the claim's own container, before it was restarted, is not": (container("a", may=HELD), False),
    "another container of the pod is": (Container(Sight("y", "a", "other"), Stage.RUNNING, HELD), True),
}


@pytest.mark.parametrize(("other", "is_in_the_way"), WAYS.values(), ids=WAYS)
def test_who_is_in_the_way_of_a_claims_container(book, other, is_in_the_way):
    own = container("a", Stage.CREATING, HELD, claims={"u": HELD})
    assert pins.in_the_way(own, [other], plan(book)) == ([other] if is_in_the_way else [])
    assert pins.in_the_way(container("x", may=HELD), [other], plan(book)) == []


def test_who_is_in_the_way_is_named_and_can_leave_if_there_is_somewhere_to_go(book):
    own, ways = container(claims={"u": HELD}), [container("x", may=HELD), container("y", may=HELD)]
    pins.check_exclusive(own, [], plan(book))
    with pytest.raises(
        InTheWayError, match="container 'main' of pod x and 1 more may still run on its CPUs; that is"
    ):
        pins.check_exclusive(own, ways, plan(book))
    book.hold("w", {1, 2, 3})
    go_down(book, {0})
    with pytest.raises(
        RefusedContainerError, match="and no CPU is left for containers without a claim"
    ) as refusal:
        pins.check_exclusive(own, ways, plan(book))
    assert not isinstance(refusal.value, InTheWayError)


REACH = {
    "one that runs holds it": (Stage.RUNNING, "x", {"u": HELD}, True),
    "one that is about to run holds it": (Stage.STARTING, "x", {"u": HELD}, True),
    "one that has no processes does not": (Stage.CREATED, "x", {"u": HELD}, False),
    "one that has lost the claim does not": (Stage.RUNNING, "x", {"u": cpus(4)}, False),
    "the container itself, before it was restarted, does not": (Stage.RUNNING, "new", {"u": HELD}, False),
}


@pytest.mark.parametrize(("stage", "pod", "claims", "refused"), REACH.values(), ids=REACH)
def test_nobody_starts_on_the_cpus_of_a_claim_whose_container_runs(book, stage, pod, claims, refused):
    carrier, starting = container(pod, stage, HELD, claims=claims), container("new", may=POOL | cpus(4))
    if not refused:
        pins.check_reach(starting, [carrier], plan(book))
        return
    with pytest.raises(InTheWayError, match="its mask has CPUs 4, which claim u holds by now"):
        pins.check_reach(starting, [carrier], plan(book))
    pins.check_reach(container("new"), [carrier], plan(book))


EMPTY = {
    "claims have all": ({1, 2, 3}, {0}, (), "claims hold CPUs 1-7: end a pod with a claim, or set reservedCPUs"),
    "what is left is down": ((), {0, 1, 2, 3}, (), "CPUs 0-3 are offline: bring them up"),
    "a file in quarantine names what is left": (
        (),
        {0},
        {1, 2, 3},
        "quarantine name CPUs 1-3: see troubleshooting",
    ),
}


@pytest.mark.parametrize(("held", "down", "quarantined", "why"), EMPTY.values(), ids=EMPTY)
def test_without_a_cpu_to_share_only_claims_containers_are_let_in(book, held, down, quarantined, why):
    go_down(book, down)
    book.hold("w" if held else "v", held or {6, 7})
    book.snapshot = replace(book.snapshot, quarantined=frozenset(quarantined))
    with pytest.raises(RefusedContainerError, match=f"no CPU is left .*{re.escape(why)}"):
        pins.check_pool(container("x"), plan(book))
    pins.check_pool(container(claims={"u": HELD}), plan(book))


def test_what_it_carries_must_still_be_so_when_it_starts(book):
    pins.check_claims(container(claims={"u": HELD}), plan(book))
    with pytest.raises(RefusedContainerError, match="claim u is no longer prepared as it was"):
        pins.check_claims(container(claims={"u": cpus(4)}), plan(book))
    with pytest.raises(RefusedContainerError, match="claim w is no longer"):
        pins.check_claims(container(claims={"u": HELD, "w": POOL}), plan(book))
    with pytest.raises(RefusedContainerError, match="because"):
        pins.check_claims(container(refusal="because"), plan(book))
