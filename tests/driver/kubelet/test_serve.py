import socket
import stat
import threading
from pathlib import Path

import grpc
import pytest

from driver.conditions import Conditions
from driver.kubelet.folders import Folders
from driver.kubelet.serve import KubeletServer
from driver.ledger.entry import Entry
from driver.ports import ClaimRef
from models import BadInputError
from tests.driver.kubelet.kubelet import Kubelet

POD = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
OTHER = "00000000-5e5a-4b0c-8f5e-0c5a3f6f3b11"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REF = ClaimRef("u1", "default", "claim")


class Nothing:
    """A preparer whose claims have no devices."""

    def __init__(self, meanwhile=lambda: None) -> None:
        self.meanwhile = meanwhile

    def prepare(self, ref, wanted):
        self.meanwhile()
        return Entry(uid=ref.uid, cpuset=frozenset({1}))

    def unprepare(self, ref, wanted):
        self.meanwhile()


@pytest.fixture
def serve(short_path):
    """Starts a server there."""
    started = []

    def serve(folders: Folders | None = None, preparer: Nothing | None = None) -> KubeletServer:
        folders = folders or Folders(short_path)
        server = KubeletServer(preparer or Nothing(), Conditions(), (), "node-1", folders)
        started.append(server)
        server.start()
        return server

    yield serve
    for server in started:
        server.stop()


def sockets(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_socket())


def stale(path: Path) -> None:
    """The socket of a process that was killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_a_kubelet_finds_the_plugin_and_learns_who_it_is(short_path, serve) -> None:
    server = serve()
    assert not server.registration.registered
    with Kubelet(short_path) as kubelet:
        info = kubelet.register()
        assert kubelet.prepare(REF)["u1"].require() == ()
    assert (info.type, info.name, info.endpoint) == (
        "DRAPlugin",
        "dra.cpu",
        f"{short_path}/plugins/dra.cpu/dra.sock",
    )
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1beta1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert server.registration.registered


def test_a_kubelet_that_does_not_take_the_plugin_is_heard_and_may_ask_again(short_path, serve, caplog) -> None:
    server = serve()
    with Kubelet(short_path) as kubelet:
        kubelet.notify("no such version")
        assert (server.registration.registered, server.registration.error) == (False, "no such version")
        assert "the kubelet does not register the plugin: no such version" in caplog.text
        kubelet.register()
    assert (server.registration.registered, server.registration.error) == (True, "")


def test_sockets_are_there_while_it_serves_and_gone_afterwards(short_path, serve) -> None:
    server = serve()
    assert sockets(short_path) == ["plugins/dra.cpu/dra.sock", "plugins_registry/dra.cpu-reg.sock"]
    server.stop()
    assert sockets(short_path) == []
    server.stop()


def test_the_kubelet_can_find_us_only_when_claims_are_served(short_path, serve, monkeypatch) -> None:
    bound: list[list[str]] = []
    start = grpc.server

    def record(*args, **how):
        bound.append(sockets(short_path))
        return start(*args, **how)

    monkeypatch.setattr(grpc, "server", record)
    serve()
    assert bound == [[], ["plugins/dra.cpu/dra.sock"]]


def test_a_pods_uid_is_part_of_its_sockets_names(short_path, serve) -> None:
    serve(Folders(short_path, POD))
    assert sockets(short_path) == [f"plugins/dra.cpu/dra-{POD}.sock", f"plugins_registry/dra.cpu-{POD}-reg.sock"]
    with Kubelet(short_path) as kubelet:
        assert kubelet.register().endpoint.endswith(f"/dra-{POD}.sock")
        assert kubelet.prepare(REF)["u1"].require() == ()


def test_what_killed_drivers_left_is_cleared_away_and_what_is_of_others_is_not(short_path, serve) -> None:
    plugin, registry = short_path / "plugins/dra.cpu", short_path / "plugins_registry"
    for path in (
        plugin / "dra.sock",
        plugin / f"dra-{OTHER}.sock",
        registry / "dra.cpu-reg.sock",
        registry / f"dra.cpu-{OTHER}-reg.sock",
    ):
        stale(path)
    theirs = [plugin / "other.sock", registry / "gpu.example.com-reg.sock", registry / "dra.cpu-x-reg.sock"]
    for path in theirs:
        stale(path)
    (plugin / "ledger").mkdir()
    serve(Folders(short_path, POD))
    assert all(path.is_socket() for path in theirs)
    assert len(sockets(short_path)) == 2 + len(theirs)


def test_the_folders_are_made_and_only_root_looks_into_the_plugins(short_path, serve) -> None:
    serve(Folders(short_path / "kubelet"))
    mode = (short_path / "kubelet/plugins/dra.cpu").stat().st_mode
    assert stat.S_IMODE(mode) & 0o007 == 0


def test_a_path_that_is_too_long_for_a_socket_is_one_error_and_binds_nothing(tmp_path) -> None:
    root = tmp_path / ("long" * 30)
    server = KubeletServer(Nothing(), Conditions(), (), "node-1", Folders(root, POD))
    with pytest.raises(
        BadInputError, match=r"has \d+ bytes, and 107 are possible; choose a shorter folder"
    ) as error:
        server.start()
    assert error.value.place == "kubeletRootDir"
    assert not root.exists()


@pytest.mark.parametrize("place", ["plugins", "plugins/dra.cpu", "plugins_registry"])
def test_a_folder_that_cannot_be_is_one_error_and_binds_nothing(short_path, serve, place) -> None:
    (short_path / place).parent.mkdir(exist_ok=True)
    (short_path / place).touch()
    with pytest.raises(BadInputError, match=place):
        serve()
    assert sockets(short_path) == []


@pytest.mark.parametrize("name", ["plugins/dra.cpu/dra.sock", "plugins_registry/dra.cpu-reg.sock"])
def test_a_socket_that_cannot_be_bound_is_one_error_and_binds_nothing(short_path, serve, name) -> None:
    (short_path / name).mkdir(parents=True)
    with pytest.raises(BadInputError, match="the socket cannot be bound"):
        serve()
    assert sockets(short_path) == []


def test_calls_under_way_end_before_the_server_does(short_path, serve) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        inside.set()
        assert go_on.wait(60)

    server, replies = serve(preparer=Nothing(meanwhile)), []
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        calling = threading.Thread(target=lambda: replies.append(kubelet.unprepare(REF)))
        calling.start()
        assert inside.wait(60)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        go_on.set()
        stopping.join(60)
        calling.join(60)
    assert replies == [{"u1": ""}]


@pytest.mark.parametrize("name", ["plugins/dra.cpu/dra.sock", "plugins_registry/dra.cpu-reg.sock"])
@pytest.mark.parametrize(
    "said", [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 100, b"\xff" * 100_000]
)
def test_a_peer_that_says_nothing_or_nonsense_holds_up_nobody(short_path, serve, name, said) -> None:
    serve()
    peers = [socket.socket(socket.AF_UNIX) for _ in range(80)]
    for peer in peers:
        peer.connect(str(short_path / name))
        peer.setblocking(False)
        try:
            peer.send(said)
        except OSError:
            continue
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        assert kubelet.prepare(REF)["u1"].require() == ()
    for peer in peers:
        peer.close()


def test_a_socket_that_a_new_driver_has_just_removed_is_none(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = short_path / "plugins_registry"
    registry.mkdir()
    monkeypatch.setattr(Path, "glob", lambda *_: iter([registry / "dra.cpu-reg.sock"]))
    assert Kubelet(short_path).sockets() == []
