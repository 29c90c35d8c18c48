import asyncio
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import grpc.aio
import pytest

from driver.conditions import Conditions
from driver.kubelet import probe, serving
from driver.kubelet import serve as kubelet_serve
from driver.kubelet.folders import Folders
from driver.kubelet.serve import TRIES, KubeletServer
from driver.kubelet.serving import DeafError
from driver.ledger.entry import Entry
from driver.ports import ClaimRef
from models import BadInputError
from tests.driver.cluster.waiting import until
from tests.driver.kubelet.kubelet import Kubelet, NotRegistered

POD = "6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11"
OTHER = "00000000-5e5a-4b0c-8f5e-0c5a3f6f3b11"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REF = ClaimRef("u1", "default", "claim")


class Nothing:
    """A desk whose claims have no devices. ``meanwhile``: happens in a thread."""

    def __init__(self, meanwhile=lambda: None) -> None:
        self.meanwhile = meanwhile

    async def prepare(self, ref):
        await asyncio.to_thread(self.meanwhile)
        return Entry(uid=ref.uid, cpuset=frozenset({1}))

    async def unprepare(self, ref):
        await asyncio.to_thread(self.meanwhile)


@pytest.fixture
def serve(short_path, monkeypatch):
    """Starts a server there, which asks its sockets only when it is told to."""
    monkeypatch.setattr(kubelet_serve, "PERIOD", 600.0)
    started = []

    def serve(folders: Folders | None = None, preparer: Nothing | None = None) -> KubeletServer:
        folders = folders or Folders(short_path)
        devices = [SimpleNamespace(name="cpudev000")]
        server = KubeletServer(preparer or Nothing(), Conditions(), devices, "node-1", folders)
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
    start = grpc.aio.server

    def record(*args, **how):
        bound.append(sockets(short_path))
        return start(*args, **how)

    monkeypatch.setattr(grpc.aio, "server", record)
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


@pytest.mark.parametrize("said", [b"", PREFACE + b"\0\0\0\4\0\0\0\0\0"])
def test_a_thousand_idle_connections_do_not_keep_the_kubelet_out_and_end(
    short_path, serve, said, monkeypatch
) -> None:
    """``said``: nothing, or what a client says before its first call, which does not come."""
    times = {"grpc.server_handshake_timeout_ms": 4000, "grpc.max_connection_idle_ms": 4000}
    monkeypatch.setattr(serving, "OPTIONS", tuple((dict(serving.OPTIONS) | times).items()))
    server = serve()
    peers = [socket.socket(socket.AF_UNIX) for _ in range(1000)]
    for peer in peers:
        peer.connect(str(Folders(short_path).socket))
        peer.sendall(said)
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        assert kubelet.prepare(REF)["u1"].require() == ()
    for peer in peers:
        peer.settimeout(60)
        with suppress(ConnectionError):
            while peer.recv(65536):
                pass
        peer.close()
    server.look()
    assert server.deaf() == []


def test_a_server_that_answers_is_left_alone(short_path, serve) -> None:
    server = serve()
    with Kubelet(short_path) as kubelet:
        watch = kubelet.register() and kubelet.watch_health(timeout=60)
        next(watch)
        for _ in range(TRIES + 2):
            server.look()
        assert server.deaf() == []
        conditions_changed(server)
        next(watch)
        watch.close()


def conditions_changed(server: KubeletServer) -> None:
    server._health._conditions.set("NRIAway", "no runtime")


@pytest.mark.parametrize("name", ["registration", "socket"])
def test_a_socket_that_somebody_has_removed_is_made_anew_at_once(short_path, serve, name) -> None:
    server = serve()
    getattr(Folders(short_path), name).unlink()
    server.look()
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        assert kubelet.prepare(REF)["u1"].require() == ()
    server.look()
    assert server.deaf() == []


@pytest.mark.parametrize("name", ["registration", "socket"])
def test_a_server_that_has_gone_deaf_is_made_anew(short_path, serve, name, monkeypatch) -> None:
    monkeypatch.setattr(probe, "DEADLINE", 0.5)
    server, path = serve(), getattr(Folders(short_path), name)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as silent:  # Accepts connections, and says nothing.
        silent.bind(str(path))
        silent.listen(100)
        for _ in range(TRIES - 1):
            server.look()
            assert path.is_socket()
            assert server.deaf() == []
        server.look()
        with Kubelet(short_path) as kubelet:
            kubelet.register()
            assert kubelet.prepare(REF)["u1"].require() == ()


def finds(kubelet: Kubelet, server: KubeletServer) -> bool:
    """Whether the kubelet finds the plugin, which looks after its sockets: a server may remove some at its end."""
    server.look()
    try:
        kubelet.register(5)
    except NotRegistered:
        return False
    return True


def test_where_the_event_loop_hangs_another_one_takes_its_place(short_path, serve, monkeypatch) -> None:
    monkeypatch.setattr(serving, "OPENING", 0.5)
    monkeypatch.setattr(kubelet_serve, "DEADLINE", 0.5)
    server, go_on = serve(), threading.Event()
    former = server._serving
    former._loop.call_soon_threadsafe(go_on.wait, 120)
    for _ in range(TRIES):
        server.look()
    assert server._serving is not former
    with Kubelet(short_path) as kubelet:
        until(lambda: finds(kubelet, server))
        assert kubelet.prepare(REF)["u1"].require() == ()
    go_on.set()
    former.do(asyncio.sleep(0), 60)
    with Kubelet(short_path) as kubelet:
        until(lambda: finds(kubelet, server))
        assert kubelet.prepare(REF)["u1"].require() == ()
    server.look()
    assert server.deaf() == []
    former.stop()


def test_what_stays_deaf_though_it_was_made_anew_is_told(short_path, serve, monkeypatch) -> None:
    server, registry = serve(), short_path / "plugins_registry"
    (registry / "dra.cpu-reg.sock").unlink()
    monkeypatch.setattr(KubeletServer, "_make_anew", lambda self: None)
    for _ in range(TRIES):
        server.look()
        assert server.deaf() == []
    server.look()
    assert server.deaf() == ["dra.cpu-reg.sock"]


def test_that_nobody_asks_the_sockets_any_more_is_told(serve, monkeypatch) -> None:
    server = serve()
    monkeypatch.setattr(kubelet_serve, "LATE", 0.0)
    assert server.deaf() == ["kubelet-watch"]


def test_failures_do_not_end_the_thread_that_asks(short_path, serve, monkeypatch) -> None:
    monkeypatch.setattr(kubelet_serve, "PERIOD", 0.01)
    looks = threading.Semaphore(0)
    errors = [BadInputError("no folder"), RuntimeError("can't start new thread"), OSError(), DeafError()]

    def look(self) -> None:
        looks.release()
        if errors:
            raise errors.pop()

    monkeypatch.setattr(KubeletServer, "look", look)
    serve()
    for _ in range(6):
        assert looks.acquire(timeout=60)


def test_a_socket_that_a_new_driver_has_just_removed_is_none(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = short_path / "plugins_registry"
    registry.mkdir()
    monkeypatch.setattr(Path, "glob", lambda *_: iter([registry / "dra.cpu-reg.sock"]))
    assert Kubelet(short_path).sockets() == []
