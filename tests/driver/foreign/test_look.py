"""Both sources together, and what people are told of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from driver.foreign import look as look_module
from driver.foreign.look import UnreadableError, complaint, look
from driver.ledger.entry import Entry, Snapshot
from driver.ledger.foreign import Foreign
from driver.node import NodeCPUs
from tests.driver.kubelet.cpu_manager import CPUManager

API, CHECKPOINT = {"default/pod-a/dpdk": {2, 3}}, {"a/dpdk": {2, 3}}


@pytest.fixture
def manager(short_path: Path) -> Iterator[CPUManager]:
    made = CPUManager(short_path / "k").start("static", "0-15").serve()
    made.give("a", "dpdk", "2-3")
    yield made
    made.close()


def found(manager: CPUManager) -> Foreign:
    return look(manager.socket, manager.checkpoint)


def snapshot(foreign: Foreign, **held: set[int]) -> Snapshot:
    entries = {uid: Entry(uid=uid, namespace="ns", name=uid, cpuset=frozenset(cpus)) for uid, cpus in held.items()}
    return Snapshot(NodeCPUs(frozenset(range(16)), frozenset()), MappingProxyType(entries), foreign=foreign)


def test_both_sources_count(manager: CPUManager) -> None:
    assert found(manager) == Foreign({**CHECKPOINT, **API}, static=True)


@pytest.mark.parametrize(
    ("lost", "left"), [("close", Foreign(CHECKPOINT, static=True)), ("unlink", Foreign(API))], ids=str
)
def test_either_source_will_do(manager: CPUManager, lost: str, left: Foreign) -> None:
    manager.close() if lost == "close" else manager.checkpoint.unlink()
    assert found(manager) == left
    assert left.bars


def test_cpus_of_the_default_set_are_everybodys_whatever_a_container_is_said_to_have(manager: CPUManager) -> None:
    manager.default = "0,3-15"
    manager.save()
    assert found(manager).cpus == {"a/dpdk": {2}, "default/pod-a/dpdk": {2}}
    manager.default = "0,2-15"
    manager.save()
    assert found(manager).cpus == {}


def test_what_has_been_given_back_while_we_asked_is_not_foreign(
    manager: CPUManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: Callable[..., object] = look_module.given_now

    def and_then_it_ends(socket: Path) -> object:
        answer = ask(socket)
        manager.take_back("a")
        return answer

    monkeypatch.setattr(look_module, "given_now", and_then_it_ends)
    assert found(manager).cpus == {}


def test_a_kubelet_of_policy_none_has_given_nothing_by_either_source(manager: CPUManager) -> None:
    manager.start("none")
    for close in (lambda: None, manager.close):
        close()
        assert found(manager) == Foreign()
        assert not found(manager).bars
    manager.serve()
    manager.checkpoint.unlink()
    assert found(manager) == Foreign()


def test_a_stale_entry_under_policy_none_is_nobodys(manager: CPUManager) -> None:
    manager.close()
    manager.policy = "none"
    manager.save()
    assert found(manager) == Foreign()


def test_a_static_policy_that_has_given_nothing_yet_bars_all_the_same(manager: CPUManager) -> None:
    manager.take_back("a")
    assert found(manager) == Foreign(static=True)
    assert "cpuManagerPolicy is static" in (complaint(snapshot(found(manager))) or "")


def test_without_either_source_both_reasons_and_the_way_out_are_said(manager: CPUManager) -> None:
    manager.close()
    manager.checkpoint.write_text("?")
    with pytest.raises(UnreadableError, match=r"UNAVAILABLE.*cpu_manager_state.*not valid JSON.*daemonset\.yaml"):
        found(manager)


def test_containers_are_named_once_with_their_cpus(manager: CPUManager) -> None:
    manager.share("b", "6-7")
    why = complaint(snapshot(found(manager)))
    assert why == (
        "the kubelet's CPU manager has given CPUs 2-3 to container dpdk of pod default/pod-a, CPUs 6-7 to "
        "containers of pod default/pod-b; drain the node and let its kubelet run with cpuManagerPolicy: none"
    )


def test_of_many_containers_some_are_named() -> None:
    why = complaint(snapshot(Foreign({f"ns/p/c{cpu}": frozenset({cpu}) for cpu in range(12)}))) or ""
    assert why.count(" to container ") == 5
    assert "and others to 7 more" in why


def test_cpus_that_a_claim_holds_too_are_named_with_the_claim() -> None:
    why = complaint(snapshot(Foreign({"ns/p/c": frozenset({2, 3})}), one={3, 4}, other={5})) or ""
    assert "of these, CPUs 3 are held by claim ns/one, which keeps them" in why


def test_there_is_nothing_to_complain_of_without_a_static_manager() -> None:
    assert complaint(snapshot(Foreign())) is None
