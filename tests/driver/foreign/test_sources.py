"""What the kubelet says of its CPU manager: by its API, and by its checkpoint."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.foreign import podresources
from driver.foreign.checkpoint import given_then, read_checkpoint
from driver.foreign.podresources import given_now
from tests.driver.kubelet.cpu_manager import CPUManager


@pytest.fixture
def manager(short_path: Path) -> Iterator[CPUManager]:
    made = CPUManager(short_path / "k").start("static", "0-15").serve()
    yield made
    made.close()


def having(given: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    return {name: cpus for name, cpus in given.items() if cpus}


def test_the_api_names_containers_by_their_pods_names(manager: CPUManager) -> None:
    manager.give("a", "dpdk", "2-3")
    manager.give("b", "x", "4")
    manager.give("b", "y", "5")
    assert having(given_now(manager.socket)) == {
        "default/pod-a/dpdk": {2, 3},
        "default/pod-b/x": {4},
        "default/pod-b/y": {5},
    }


def test_what_a_pod_has_is_shared_by_those_of_its_containers_that_have_none(manager: CPUManager) -> None:
    manager.give("a", "dpdk", "2-3")
    manager.share("a", "2-7")
    assert having(given_now(manager.socket)) == {"default/pod-a/dpdk": {2, 3}, "default/pod-a/*": {4, 5, 6, 7}}
    then = given_then(read_checkpoint(manager.checkpoint))
    assert then == {"a/dpdk": {2, 3}, "a/*": {4, 5, 6, 7}}


def test_numbers_that_no_cpu_has_are_left_out(manager: CPUManager, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.give("a", "dpdk", "2")
    monkeypatch.setattr(
        "tests.driver.kubelet.cpu_manager.parse_cpuset", lambda text: [2, -1, 2**62] if text else []
    )
    assert having(given_now(manager.socket)) == {"default/pod-a/dpdk": {2}}


def test_a_kubelet_that_is_away_is_said_to_be(manager: CPUManager) -> None:
    manager.close()
    with pytest.raises(OSError, match=r"kubelet\.sock: UNAVAILABLE"):
        given_now(manager.socket)


def test_a_kubelet_that_does_not_answer_is_not_waited_for_for_ever(
    manager: CPUManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "TIMEOUT", 0.2)
    manager.hang()
    with pytest.raises(OSError, match="DEADLINE_EXCEEDED"):
        given_now(manager.socket)


def test_a_kubelet_without_this_api_is_said_to_be(manager: CPUManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podresources, "LIST", "/v1.PodResourcesLister/Liste")
    with pytest.raises(OSError, match="UNIMPLEMENTED"):
        given_now(manager.socket)


def test_the_checkpoint_is_read_anew_each_time(manager: CPUManager) -> None:
    manager.give("a", "dpdk", "2-3")
    assert given_then(read_checkpoint(manager.checkpoint)) == {"a/dpdk": {2, 3}}
    manager.give("b", "dpdk", "4")
    state = read_checkpoint(manager.checkpoint)
    assert given_then(state) == {"a/dpdk": {2, 3}, "b/dpdk": {4}}
    assert (state.policy, state.default) == ("static", {0, 1, *range(5, 16)})


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"{", "not valid JSON"), (b"\xff\xfe", "utf-8"), (b"x" * 9_000_000, "larger")],
)
def test_what_is_no_checkpoint_is_said_to_be_none(manager: CPUManager, content: bytes | None, why: str) -> None:
    manager.checkpoint.unlink()
    if content is not None:
        manager.checkpoint.write_bytes(content)
    with pytest.raises(OSError, match=why) as error:
        read_checkpoint(manager.checkpoint)
    assert str(manager.checkpoint) in str(error.value)


MOUNTED = """
import ctypes, sys
from pathlib import Path
from driver.foreign.checkpoint import read_checkpoint
from tests.driver.kubelet.cpu_manager import CPUManager
root, mounted = Path(sys.argv[1]), Path(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x44000, None):
    sys.exit(77)
manager = CPUManager(root).start("static", "0-15")
mounted.touch()
if libc.mount(bytes(manager.checkpoint), bytes(mounted), None, 4096, None):
    sys.exit(77)
print(read_checkpoint(mounted).policy)
manager.give("a", "dpdk", "2-3")
try:
    print(read_checkpoint(mounted))
except OSError as error:
    print(error)
"""


def test_a_mounted_checkpoint_that_the_kubelet_has_replaced_says_nothing_any_more(tmp_path: Path) -> None:
    """A mount of one file stays with that file, which then is nobody's."""
    command = [sys.executable, "-c", MOUNTED, str(tmp_path / "k"), str(tmp_path / "mounted")]
    ended = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), timeout=60, check=False)
    if ended.returncode == 77:
        pytest.skip("no mounts can be made here")
    policy, error = ended.stdout.splitlines()
    assert policy == "static"
    assert "has replaced it since it was mounted" in error
