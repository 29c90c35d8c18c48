"""The thread that keeps the ledger informed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.conditions import Conditions
from driver.foreign import watch as watch_module
from driver.foreign.look import UnreadableError
from driver.foreign.watch import PATIENCE, ForeignWatch
from driver.ledger.book import Ledger
from driver.ledger.files import Files
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from tests.driver.cluster.waiting import until

GIVEN = Foreign({"ns/p/c": frozenset({2, 3})}, static=True)


class Kubelet:
    """Says what it is told to, or nothing."""

    def __init__(self) -> None:
        self.says: Foreign | None = Foreign()
        self.asked = 0

    def __call__(self) -> Foreign:
        self.asked += 1
        if self.says is None:
            raise UnreadableError("nobody answers")
        return self.says


class Scene:
    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger.open(NodeCPUs(frozenset(range(16)), frozenset()), Files(folder))
        self.kubelet, self.conditions, self.time = Kubelet(), Conditions(), 0.0
        self.watch = ForeignWatch(self.kubelet, self.ledger, self.conditions, lambda: self.time)

    def look(self, says: Foreign | None) -> Foreign:
        self.kubelet.says = says
        self.watch.look()
        return self.ledger.snapshot.foreign


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "ledger")
    yield made
    made.watch.stop()
    made.ledger.close()


def test_what_the_kubelet_has_given_leaves_pool_and_offer_and_is_said(scene: Scene) -> None:
    assert scene.look(GIVEN) == GIVEN
    assert scene.ledger.snapshot.pool == scene.ledger.snapshot.free == {0, 1, *range(4, 16)}
    assert "CPUs 2-3 to container c of pod ns/p" in scene.conditions.current()["StaticCPUManager"]
    assert scene.look(Foreign()) == Foreign()
    assert scene.ledger.snapshot.free == set(range(16))
    assert scene.conditions.current() == {}


def test_who_suspects_a_static_manager_for_another_reason_is_not_contradicted(scene: Scene) -> None:
    scene.conditions.set("StaticCPUManager", "somebody sets CPUs")
    scene.look(GIVEN)
    assert scene.conditions.current()["StaticCPUManager"].startswith(
        "somebody sets CPUs; the kubelet's CPU manager"
    )
    scene.look(Foreign())
    assert scene.conditions.current() == {"StaticCPUManager": "somebody sets CPUs"}


def test_a_kubelet_that_cannot_be_asked_at_the_start_is_unknown_at_once(scene: Scene) -> None:
    assert scene.look(None) == Foreign(known=False)
    assert scene.conditions.current() == {"ExclusiveCPUsUnknown": "nobody answers"}
    assert scene.look(Foreign()) == Foreign()
    assert scene.conditions.current() == {}


def test_a_kubelet_that_starts_anew_is_what_it_was_for_a_while(scene: Scene) -> None:
    scene.look(GIVEN)
    scene.time += PATIENCE - 1
    assert scene.look(None) == GIVEN
    assert scene.conditions.current().keys() == {"StaticCPUManager"}
    scene.time += 1
    assert scene.look(None) == Foreign(GIVEN.cpus, known=False, static=True)
    assert scene.conditions.current().keys() == {"StaticCPUManager", "ExclusiveCPUsUnknown"}


def test_it_has_looked_when_it_has_started_and_looks_when_there_is_cause(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "GAP", 0.0)
    scene.kubelet.says = GIVEN
    scene.watch.start()
    assert scene.ledger.snapshot.foreign == GIVEN
    scene.kubelet.says = Foreign()
    scene.watch.wake()
    until(lambda: scene.ledger.snapshot.foreign == Foreign())


def test_it_looks_by_itself_too_and_a_defect_does_not_end_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GAP", "PERIOD"):
        monkeypatch.setattr(watch_module, name, 0.01)
    scene.watch.start()

    def defect(*_: object) -> None:
        scene.kubelet.asked += 1
        raise ZeroDivisionError

    monkeypatch.setattr(scene.watch, "_look", defect)
    asked = scene.kubelet.asked
    until(lambda: scene.kubelet.asked > asked + 2)
    monkeypatch.setattr(scene.watch, "_look", lambda: GIVEN)
    until(lambda: scene.ledger.snapshot.foreign == GIVEN)
