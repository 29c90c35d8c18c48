"""What is a condition of the driver while one process takes over from another."""

import pytest

from driver.conditions import Conditions
from driver.nri.messages import State
from driver.nri.standing import AWAY_AFTER, ENDED, Standing

HERE = State(here=True)
MANAGER = State(here=True, conditions={"StaticCPUManager": "somebody sets CPUs"})
AWAY = State(here=False, conditions={"NRIAway": "the runtime does not answer"})


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def conditions():
    return Conditions()


@pytest.fixture
def standing(conditions, clock):
    return Standing(conditions, clock)


def test_a_process_says_what_holds(standing, conditions):
    assert not standing.here.is_set()
    standing.take(MANAGER)
    assert standing.here.is_set()
    assert conditions.current() == MANAGER.conditions
    standing.take(AWAY)
    assert not standing.here.is_set()
    assert conditions.current() == AWAY.conditions
    standing.take(HERE)
    assert conditions.current() == {}


def test_conditions_of_others_are_left_alone(standing, conditions):
    conditions.set("TopologyChanged", "CPUs went down")
    standing.take(MANAGER)
    standing.take(HERE)
    standing.ended()
    standing.judge()
    assert conditions.current().keys() == {"TopologyChanged"}


def test_one_that_is_replaced_soon_is_no_condition(standing, conditions, clock):
    standing.take(HERE)
    standing.ended()
    clock.now += AWAY_AFTER
    standing.judge()
    assert conditions.current() == {}
    assert standing.taking_over
    assert not standing.here.is_set()
    standing.take(State(here=False))
    assert standing.taking_over, "it runs, and is not connected"
    standing.take(HERE)
    assert not standing.taking_over
    clock.now += 1000
    standing.judge()
    assert conditions.current() == {}


def test_one_that_is_not_replaced_soon_is(standing, conditions, clock):
    standing.ended()
    clock.now += AWAY_AFTER / 2
    standing.ended()
    clock.now += AWAY_AFTER / 2 + 0.1
    standing.judge()
    assert conditions.current() == {"NRIAway": ENDED}
    standing.take(State(here=False))
    assert conditions.current() == {"NRIAway": ENDED}
    standing.take(AWAY)
    assert conditions.current() == AWAY.conditions, "that is why"
    assert not standing.taking_over
    standing.take(HERE)
    assert conditions.current() == {}


def test_what_one_has_reported_holds_until_the_next_one_knows_better(standing, conditions, clock):
    standing.take(MANAGER)
    standing.ended()
    standing.judge()
    assert conditions.current() == MANAGER.conditions
    clock.now += AWAY_AFTER + 0.1
    standing.judge()
    assert conditions.current() == {**MANAGER.conditions, "NRIAway": ENDED}
    standing.take(State(here=False))
    assert conditions.current().keys() == {"StaticCPUManager", "NRIAway"}
    standing.take(HERE)
    assert conditions.current() == {}
