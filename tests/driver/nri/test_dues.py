"""Which containers are not in line with the ledger, and what is to be done about them."""

from dataclasses import replace

import pytest

from driver.nri import dues
from driver.nri.container import Container, Pending, Stage
from driver.nri.plan import Plan
from driver.nri.sight import Pin, Sight
from models import to_mask
from tests.driver.nri.book import Book

POOL = to_mask({1, 2, 3})
HELD = to_mask({4, 5})
WIDE = POOL | HELD
TOLD = Pin(POOL)
NOW = 100.0

CREATING, CREATED, STARTING, RUNNING = Stage


@pytest.fixture
def plan():
    """CPU 0 is reserved, claim ``u`` of pod ``a`` holds 4 and 5."""
    book = Book(range(6))
    book.hold("u", {4, 5}, pods=("a",))
    return Plan(book.snapshot)


def shared(stage=RUNNING, may=POOL, seen=POOL, told=TOLD, told_at=0.0, legible=True, **more):
    return Container(
        Sight("x", "x", "main"), stage, may, seen=seen, told=told, told_at=told_at, legible=legible, **more
    )


IN_LINE = shared()
FOUND = shared(told=None)
UNTOLD = shared(may=WIDE, seen=WIDE, told=Pin(WIDE))
ON_ITS_WAY = shared(may=WIDE, seen=None, told_at=NOW)
LOST = shared(may=WIDE, seen=WIDE, vain=1)
HIDDEN = shared(may=WIDE, seen=None, legible=False)
ANSWERED = shared(pending=(Pending("answer", WIDE, NOW),))
REPEATED = shared(may=WIDE, seen=WIDE, pending=(Pending("direct", POOL, NOW),))

STATES = {
    "in line": IN_LINE,
    "found in line": FOUND,
    "not told yet": UNTOLD,
    "told, on its way": ON_ITS_WAY,
    "told twice in vain": LOST,
    "told, and its mask cannot be read": HIDDEN,
    "told another mask that may arrive late": ANSWERED,
    "told out of the blue": REPEATED,
    "narrower than it should be": shared(may=to_mask({1}), seen=to_mask({1}), told=Pin(to_mask({1}))),
    "in creation": shared(CREATING, may=WIDE, seen=None, told=Pin(WIDE), told_at=NOW - 0.5),
    "in creation for long": shared(CREATING, may=WIDE, seen=None, told=Pin(WIDE)),
    "created just now": shared(CREATED, may=WIDE, seen=None, told=Pin(WIDE), told_at=NOW - 0.5),
    "created long ago": shared(CREATED, may=WIDE, seen=None, told=Pin(WIDE)),
    "about to start": shared(STARTING, may=WIDE, seen=WIDE, told=Pin(WIDE)),
}

YES = {
    "loose": set(STATES) - {"in line", "found in line"},
    "unsettled": {
        "not told yet",
        "told, on its way",
        "told twice in vain",
        "told, and its mask cannot be read",
        "told another mask that may arrive late",
        "told out of the blue",
        "narrower than it should be",
        "about to start",
    },
    "changed": {"not told yet", "narrower than it should be", "created just now", "created long ago"},
    "awaited": {
        "told, on its way",
        "told twice in vain",
        "told, and its mask cannot be read",
        "told another mask that may arrive late",
        "told out of the blue",
    },
    "to look at": {
        "told, on its way",
        "told twice in vain",
        "told, and its mask cannot be read",
        "told another mask that may arrive late",
        "told out of the blue",
        "about to start",
    },
    "lost": {
        "told twice in vain",
        "told, and its mask cannot be read",
        "told another mask that may arrive late",
        "told out of the blue",
    },
    "moves": {
        "in line",
        "found in line",
        "not told yet",
        "told, on its way",
        "told out of the blue",
        "narrower than it should be",
    },
    "stuck": {
        "told twice in vain",
        "told, and its mask cannot be read",
        "told another mask that may arrive late",
        "in creation",
        "created just now",
        "about to start",
    },
}
"""Of which state each is true; ``lost``: told a second ago or more."""

ASKED = {
    "loose": dues.is_loose,
    "unsettled": lambda each, plan: bool(dues.unsettled([each], plan)),
    "changed": lambda each, plan: bool(dues.changed([each], plan)),
    "awaited": lambda each, plan: bool(dues.awaited([each], plan)),
    "to look at": lambda each, plan: bool(dues.to_look_at([each], plan)),
    "lost": lambda each, plan: bool(dues.lost([each], plan, NOW - 1)),
    "moves": dues.moves,
    "stuck": lambda each, plan: bool(dues.stuck([each], plan, NOW)),
}


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("state", STATES)
def test_what_is_true_of_a_container_without_a_claim(plan, state, question):
    assert ASKED[question](STATES[state], plan) is (state in YES[question])


@pytest.mark.parametrize("question", ["unsettled", "changed", "awaited", "to look at", "lost", "stuck"])
@pytest.mark.parametrize("state", STATES)
def test_what_is_in_line_needs_nothing(plan, state, question):
    """So nobody but those that are not in line is asked about."""
    assert dues.is_loose(STATES[state], plan) or not ASKED[question](STATES[state], plan)


@pytest.mark.parametrize("question", ["unsettled", "changed", "awaited", "to look at", "lost", "moves", "stuck"])
@pytest.mark.parametrize("state", STATES)
def test_without_a_cpu_to_share_nothing_can_be_done(plan, state, question):
    node = replace(plan.snapshot.node, offline=frozenset({0, 1, 2, 3}))
    assert not ASKED[question](STATES[state], Plan(replace(plan.snapshot, node=node)))


def test_a_claims_own_container_is_in_nobodys_way(plan):
    own = Container(Sight("a", "a", "main"), RUNNING, HELD, {"u": HELD}, HELD, legible=True, told=Pin(HELD))
    assert not dues.is_loose(own, plan)
    assert dues.stuck([own], plan, NOW) == []
    assert dues.stuck([replace(own, claims={}, vain=1, told=Pin(POOL))], plan, NOW) != []


def test_memory_nodes_that_were_not_told_are_told(plan):
    bound = Plan(
        replace(plan.snapshot, entries={"u": plan.snapshot.entries["u"].model_copy(update={"mems": {1}})})
    )
    own = Container(Sight("a", "a", "main"), RUNNING, HELD, {"u": HELD}, HELD, legible=True, told=None)
    assert dues.changed([own], plan) == []
    assert dues.changed([own], bound) == [own]
    assert dues.is_loose(own, bound)
