"""What is known of containers, step by step."""

import pytest

from driver.nri.container import Container, Stage
from driver.nri.pins import InTheWayError, RefusedContainerError
from driver.nri.registry import Registry
from driver.nri.sight import Pin, Sight
from driver.protos import nri_pb2 as nri
from models import to_mask
from tests.driver.nri.book import Book

ALL = to_mask(range(1, 8))
HELD = frozenset({4, 5})
CLAIM = to_mask(HELD)
SMALL = ALL & ~CLAIM


class Table:
    """A registry with a clock that is set by hand; containers are named by their pod."""

    def __init__(self):
        self.book, self.time = Book(range(8)), 0.0
        self.registry = Registry(lambda: self.book.snapshot, self.book.own, clock=lambda: self.time)
        self.registry.synchronize([], {}, {}, afresh=True)

    def sight(self, pod, cpus=None, state=nri.CONTAINER_RUNNING, uid=None):
        variables = ((f"DRA_CPUSET_{uid}", "4-5"),) if uid else ()
        return Sight(pod, pod, "main", sandbox=pod, variables=variables, cpus=cpus, state=state)

    def run(self, pod, uid=None, kernel=None):
        """Create and start it; the updates that others get meanwhile."""
        sight = self.sight(pod, uid=uid)
        _, updates = self.registry.create(sight, {})
        self.registry.created(sight)
        self.registry.start(sight, {pod: kernel})
        self.registry.started(sight)
        return updates

    def get(self, pod):
        return next(each for each in self.registry.known() if each.id == pod)

    def due(self):
        return self.registry.changed() + self.registry.lost()

    def look(self, pod, cpus):
        self.registry.looked([(self.get(pod), cpus)])


@pytest.fixture
def table():
    return Table()


def hold(table):
    table.book.hold("u", HELD, pods=("a",))


def test_a_creation_carries_the_change_to_others_once(table):
    table.run("x", kernel=ALL)
    hold(table)
    updates = table.run("y", kernel=SMALL)
    assert [(each.container, each.pin) for each in updates] == [("x", Pin(SMALL))]
    assert table.run("z", kernel=SMALL) == []


def test_one_that_is_told_counts_on_both_masks_until_the_kernel_has_the_new_one(table):
    table.run("x", kernel=ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    assert table.get("x").reach == ALL
    table.look("x", ALL)
    assert [each.id for each in table.registry.unsettled()] == ["x"]
    table.look("x", SMALL)
    assert table.registry.unsettled() == []


def test_an_update_counts_as_lost_after_a_while_and_its_container_as_repaired(table):
    table.run("x", kernel=ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    assert table.due() == []
    table.time += 1
    assert [each.id for each in table.due()] == ["x"]
    listed = [table.sight("x"), table.sight("y")]
    updates = table.registry.synchronize(listed, {}, {"x": ALL, "y": SMALL}, afresh=False)
    assert [each.container for each in updates] == ["x"]
    assert table.registry.take_repaired() == 0
    table.look("x", SMALL)
    assert table.registry.unsettled() == []
    assert table.registry.take_repaired() == 1
    assert table.registry.take_repaired() == 0


def test_a_pool_that_shrinks_and_grows_back_is_not_taken_for_unchanged(table):
    table.run("x", kernel=ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    table.book.forget("u")
    table.run("z", kernel=ALL)
    assert "x" in {each.id for each in table.registry.unsettled()}
    table.look("x", SMALL)
    assert "x" in {each.id for each in table.registry.unsettled()}
    table.look("x", ALL)
    assert "x" not in {each.id for each in table.registry.unsettled()}


def test_an_answer_to_an_update_counts_until_it_is_said_to_be_applied(table):
    table.run("x", kernel=ALL)
    assert table.registry.update(table.sight("x")) == Pin(ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    table.look("x", SMALL)
    with pytest.raises(RefusedContainerError, match="may still run"):
        table.registry.create(table.sight("a", uid="u"), {"x": SMALL})
    table.registry.updated("x")
    own = table.sight("a", uid="u")
    _, updates = table.registry.create(own, {})
    assert [each.container for each in updates] == ["x"]
    with pytest.raises(RefusedContainerError, match="may still run"):
        table.registry.start(own, {"a": CLAIM, "x": ALL})
    table.registry.stop("a")
    table.registry.create(own, {"x": SMALL})
    table.registry.start(own, {"a": CLAIM})


def test_an_answer_that_failed_is_let_go_at_the_next_list(table):
    table.run("x", kernel=ALL)
    table.registry.update(table.sight("x"))
    hold(table)
    listed = [table.sight("x")]
    table.registry.synchronize(listed, {}, {"x": ALL}, afresh=False)
    table.look("x", SMALL)
    assert table.get("x").reach == ALL
    table.time += 1
    table.registry.synchronize(listed, {}, {"x": SMALL}, afresh=False)
    assert table.get("x").reach == SMALL


def test_what_is_told_out_of_the_blue_may_arrive_after_what_is_told_later(table):
    table.run("x", kernel=ALL)
    hold(table)
    first = table.registry.tell_due()
    table.book.forget("u")
    table.run("y", kernel=ALL)
    table.look("x", ALL)
    assert [each.id for each in table.registry.unsettled()] == ["x"]
    table.registry.applied(first, set())
    assert [each.id for each in table.registry.unsettled()] == ["x"]
    table.look("x", ALL)
    assert table.registry.unsettled() == []


def test_without_the_kernel_an_update_that_the_runtime_failed_is_not_taken_for_done(table):
    late = table.sight("x", cpus=SMALL)
    table.registry.create(late, {})
    table.registry.created(late)
    hold(table)
    table.run("y", kernel=SMALL)
    table.registry.start(late, {"x": None})
    table.registry.started(late)
    table.time += 1
    table.registry.applied(table.registry.tell_due(), {"x"})
    table.registry.synchronize([late], {}, {"x": None}, afresh=False)
    assert [each.id for each in table.registry.unsettled()] == ["x"]
    table.registry.synchronize([late], {}, {"x": None}, afresh=False)
    assert table.registry.unsettled() == []


def test_a_mask_that_was_read_before_an_answer_arrived_proves_nothing(table):
    table.run("x", kernel=ALL)
    table.registry.update(table.sight("x"))
    hold(table)
    table.run("y", kernel=SMALL)
    before = table.get("x")
    table.registry.updated("x")
    table.registry.looked([(before, SMALL)])
    assert table.get("x").reach == ALL
    assert [each.id for each in table.registry.unsettled()] == ["x"]


def test_what_was_told_counts_as_on_its_way_though_the_kernel_has_it_not(table):
    hold(table)
    table.run("x", kernel=SMALL)
    table.book.forget("u")
    table.run("y", kernel=ALL)
    table.look("x", SMALL)
    assert table.get("x").reach == ALL


def test_one_that_was_told_to_leave_is_not_in_line_before_it_is_told_to_stay(table):
    table.run("x", kernel=ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    table.book.forget("u")
    table.look("x", ALL)
    assert "x" in {each.id for each in table.registry.unsettled()}


def test_an_adopted_claim_is_not_for_one_that_only_starts(table):
    table.book.hold("u", HELD, pods=(), adopted=True)
    with pytest.raises(RefusedContainerError, match="not reserved"):
        table.registry.start(table.sight("a", uid="u"), {})
    table.registry.started(table.sight("a", uid="u"))
    assert table.registry.carries("u")


def test_a_creation_that_came_to_nothing_is_forgotten_some_time(table):
    hold(table)
    table.registry.create(table.sight("a", uid="u"), {})
    table.registry.synchronize([], {}, {}, afresh=False)
    assert table.registry.carries("u")
    table.time += 1000
    table.registry.synchronize([], {}, {"a": None}, afresh=False)
    assert not table.registry.carries("u")


@pytest.mark.parametrize("announced", [True, False])
def test_one_that_vanishes_while_it_starts_is_not_in_the_way_for_ever(table, announced):
    if announced:
        table.registry.create(table.sight("x"), {})
        table.registry.created(table.sight("x"))
    table.registry.start(table.sight("x", cpus=ALL), {})
    hold(table)
    table.look("x", None)
    assert table.due() == []
    table.time += 31
    table.look("x", None)
    assert [each.id for each in table.due()] == ["x"]
    table.registry.synchronize([], {}, {"x": None}, afresh=False)
    table.run("a", uid="u", kernel=CLAIM)
    assert [each.id for each in table.registry.known()] == ["a"]


def test_the_word_that_one_runs_comes_too_late_when_it_has_stopped(table):
    table.run("x", kernel=ALL)
    table.registry.stop("x")
    table.registry.started(table.sight("x", state=nri.CONTAINER_STOPPED))
    assert table.registry.known() == []
    table.registry.started(table.sight("y"))
    assert [each.id for each in table.registry.known()] == ["y"]


def test_nothing_is_told_to_one_in_creation_or_about_to_start(table):
    sight = table.sight("x")
    table.registry.create(sight, {})
    hold(table)
    assert table.run("y", kernel=SMALL) == []
    table.registry.created(sight)
    assert [each.container for each in table.run("z", kernel=SMALL)] == ["x"]
    table.book.forget("u")
    table.registry.start(sight, {"x": ALL})
    assert {each.id for each in table.due()} == {"y", "z"}
    table.registry.started(sight)
    assert {each.id for each in table.due()} == {"x", "y", "z"}


def test_without_the_kernel_a_start_is_taken_at_the_runtimes_word_if_nothing_else_was_told(table):
    sight = table.sight("x", cpus=ALL)
    table.registry.create(sight, {})
    table.registry.start(sight, {"x": None})
    assert table.registry.unsettled() == []
    late = table.sight("y", cpus=SMALL)
    table.registry.create(late, {})
    table.registry.created(late)
    hold(table)
    table.run("z", kernel=SMALL)
    table.registry.start(late, {"y": None})
    assert "y" in {each.id for each in table.registry.unsettled()}
    assert table.get("y").reach == ALL


def test_a_container_stays_known_while_it_is_in_creation_and_not_listed(table):
    table.registry.create(table.sight("x"), {})
    table.registry.synchronize([], {}, {}, afresh=False)
    assert [each.id for each in table.registry.known()] == ["x"]
    table.registry.synchronize([], {}, {"x": None}, afresh=True)
    assert table.registry.known() == []


def test_a_running_container_that_is_not_listed_is_kept_while_the_kernel_has_it(table):
    table.run("x", kernel=ALL)
    table.registry.synchronize([], {}, {"x": ALL}, afresh=True)
    assert [each.id for each in table.registry.known()] == ["x"]
    table.registry.synchronize([], {}, {"x": None}, afresh=True)
    assert table.registry.known() == []


def test_stopped_containers_are_not_taken_from_a_list_or_an_update(table):
    stopped = table.sight("x", state=nri.CONTAINER_STOPPED)
    table.registry.synchronize([stopped], {}, {}, afresh=True)
    assert table.registry.update(stopped) is None
    assert table.registry.known() == []


def test_a_creation_tells_those_again_that_did_not_do_as_they_were_told_but_not_for_ever(table):
    table.run("x", kernel=ALL)
    table.look("x", ALL)
    hold(table)
    own = table.sight("a", uid="u")
    assert table.registry.doubtful(own) == {}, "it has yet to be told"
    table.run("y", kernel=SMALL)
    assert list(table.registry.doubtful(own)) == ["x"]
    _, updates = table.registry.create(own, {"x": ALL})
    assert [each.container for each in updates] == ["x"]
    with pytest.raises(InTheWayError, match="may still run"):
        table.registry.start(own, {"a": CLAIM, "x": ALL})
    table.registry.stop("a")
    assert [each.id for each in table.registry.stuck()] == ["x"]
    with pytest.raises(InTheWayError, match="may still run"):
        table.registry.create(own, {"x": ALL})
    table.look("x", SMALL)
    assert table.registry.stuck() == []
    table.registry.create(own, {})


def test_a_creation_repeats_what_is_on_its_way_out_of_the_blue(table):
    table.run("x", kernel=ALL)
    table.look("x", ALL)
    hold(table)
    first = table.registry.tell_due()
    own = table.sight("a", uid="u")
    _, updates = table.registry.create(own, {"x": ALL})
    assert [each.container for each in updates] == ["x"]
    table.registry.created(own)
    table.registry.start(own, {"a": CLAIM, "x": SMALL})
    table.registry.applied(first, set())
    table.look("x", SMALL)
    assert table.registry.unsettled() == []


def test_a_creation_is_refused_while_somebody_is_about_to_run_on_the_claims_cpus(table):
    late = table.sight("x")
    table.registry.create(late, {})
    hold(table)
    own = table.sight("a", uid="u")
    for step in (table.registry.created, lambda _: None):
        assert [each.id for each in table.registry.stuck()] == ["x"]
        with pytest.raises(InTheWayError, match="pod x may still run"):
            table.registry.create(own, {})
        step(late)
    table.registry.start(late, {"x": ALL})
    with pytest.raises(InTheWayError, match="pod x may still run"):
        table.registry.create(own, {})
    table.registry.started(late)
    assert table.registry.stuck() == []
    _, updates = table.registry.create(own, {})
    assert [each.container for each in updates] == ["x"]


@pytest.mark.parametrize("known", [True, False])
def test_what_does_not_start_in_time_keeps_no_creation_waiting(table, known):
    late = table.sight("x")
    table.registry.create(late, {})
    if known:
        table.registry.created(late)
    hold(table)
    table.time += 2
    assert table.registry.stuck() == []
    _, updates = table.registry.create(table.sight("a", uid="u"), {})
    assert [each.container for each in updates] == (["x"] if known else [])


def test_a_container_whose_mask_was_never_read_is_not_moved_by_a_creation(table):
    table.run("x", kernel=None)
    hold(table)
    assert [each.id for each in table.registry.stuck()] == ["x"]
    with pytest.raises(InTheWayError, match="may still run"):
        table.registry.create(table.sight("a", uid="u"), {})
    table.look("x", ALL)
    assert table.registry.stuck() == []


def test_a_start_is_refused_for_a_mask_that_was_not_read_in_time(table):
    table.run("x", kernel=ALL)
    table.look("x", ALL)
    hold(table)
    own = table.sight("a", uid="u")
    table.registry.create(own, {})
    assert set(table.registry.in_the_way(own)) == {"x"}
    with pytest.raises(InTheWayError, match="may still run"):
        table.registry.start(own, {"a": CLAIM})
    table.registry.create(own, {})
    table.registry.start(own, {"a": CLAIM, "x": SMALL})


def test_a_list_needs_the_masks_of_those_that_are_not_in_line_and_after_an_absence_of_all(table):
    table.run("x", kernel=ALL)
    table.look("x", ALL)
    table.run("gone", kernel=ALL)
    table.look("gone", ALL)
    listed = [table.sight("x"), table.sight("new")]
    assert set(table.registry.to_read(listed, afresh=False)) == {"gone", "new"}
    assert set(table.registry.to_read(listed, afresh=True)) == {"x", "gone", "new"}
    hold(table)
    assert set(table.registry.to_read(listed, afresh=False)) == {"gone", "new"}, "nobody was told yet"
    table.run("y", kernel=SMALL)
    assert set(table.registry.to_read([*listed, table.sight("y")], afresh=False)) == {"x", "gone", "new"}


def test_what_the_runtime_has_noted_says_nothing_where_the_kernel_was_not_asked(table):
    table.run("x", kernel=ALL)
    table.look("x", ALL)
    table.registry.synchronize([table.sight("x", cpus=CLAIM)], {}, {}, afresh=False)
    assert table.get("x").reach == ALL
    table.registry.synchronize([table.sight("x", cpus=to_mask({0}))], {}, {"x": None}, afresh=False)
    assert table.get("x").reach == ALL | to_mask({0})


def test_one_that_is_not_listed_is_kept_while_nobody_has_looked(table):
    table.run("x", kernel=ALL)
    table.registry.synchronize([], {}, {}, afresh=True)
    assert [each.id for each in table.registry.known()] == ["x"]


def test_the_later_of_many_updates_is_given_more_time(table):
    names = [f"x{number}" for number in range(100)]
    for name in names:
        table.run(name, kernel=ALL)
        table.look(name, ALL)
    hold(table)
    table.run("y", kernel=SMALL)
    table.time += 1
    lost = {each.id for each in table.registry.lost()}
    assert names[0] in lost
    assert names[-1] not in lost
    table.time += 2
    assert {each.id for each in table.registry.lost()} == {*names}
    assert len(table.registry.synchronize([table.sight(name) for name in names], {}, {}, afresh=False)) == 100


def test_a_container_that_was_found_with_a_claim_of_another_pod_has_it_once_that_is_known_to_be_right(table):
    table.book.hold("u", HELD, pods=("b",))
    listed = [table.sight("a", uid="u")]
    table.registry.synchronize(listed, {"a": "a"}, {"a": ALL}, afresh=True)
    table.registry.reconsider()
    assert table.get("a").refusal
    table.look("a", SMALL)
    table.book.hold("u", HELD, pods=("a", "b"))
    table.registry.reconsider()
    assert table.get("a").claims == {"u": CLAIM}
    assert not table.get("a").refusal
    assert table.registry.carries("u")
    assert [(each.container, each.pin) for each in table.registry.tell_due()] == [("a", Pin(CLAIM))]


def test_a_claim_is_not_given_late_to_one_whom_others_are_in_the_way_of(table):
    table.book.hold("u", HELD, pods=("b",))
    listed = [table.sight("a", uid="u"), table.sight("x")]
    table.registry.synchronize(listed, {"a": "a"}, {"a": ALL, "x": ALL}, afresh=True)
    table.book.hold("u", HELD, pods=("a", "b"))
    table.registry.reconsider()
    assert table.get("a").refusal
    table.look("x", SMALL)
    table.registry.reconsider()
    assert table.get("a").claims == {"u": CLAIM}


def test_a_container_that_was_found_before_its_start_may_carry_what_is_known_by_then(table):
    table.book.hold("u", HELD, pods=("b",))
    own = table.sight("a", uid="u", cpus=CLAIM, state=nri.CONTAINER_CREATED)
    table.registry.synchronize([own], {"a": "a"}, {"a": None}, afresh=True)
    table.book.hold("u", HELD, pods=("a", "b"))
    table.registry.start(own, {"a": CLAIM})
    assert table.get("a").claims == {"u": CLAIM}


def test_a_container_nobody_told_us_of_is_found_by_its_update(table):
    hold(table)
    assert table.registry.update(table.sight("a", uid="u")) == Pin(CLAIM)
    assert table.registry.carries("u")


def test_of_two_that_name_a_claim_in_a_list_the_owner_has_it_or_else_the_older(table):
    table.book.hold("u", HELD, pods=("a", "b"))
    old, new = table.sight("b", uid="u"), table.sight("a", uid="u")
    table.registry.synchronize([new, Sight(**{**vars(old), "created_at": -1})], {}, {}, afresh=True)
    assert (table.get("b").claims, table.get("a").claims) == ({"u": CLAIM}, {})
    again = Table()
    again.book.hold("u", HELD, pods=("a", "b"), owner=new.owner)
    again.registry.synchronize([old, new], {"a": "a", "b": "b"}, {}, afresh=True)
    assert (again.get("b").claims, again.get("a").claims) == ({}, {"u": CLAIM})


def test_a_claim_that_changes_its_cpus_is_not_followed(table):
    hold(table)
    table.run("a", uid="u", kernel=CLAIM)
    table.book.hold("u", {6}, pods=("a",))
    assert [each.pin for each in table.registry.tell_due()] == [Pin(ALL & ~to_mask({6}))]


def test_a_stage_never_goes_back():
    container = Container(Sight("x", "x", "main"), Stage.RUNNING, ALL)
    assert container.reach_stage(Stage.CREATED).stage is Stage.RUNNING
