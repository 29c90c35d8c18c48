import socket
import struct
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from driver.conditions import Conditions
from driver.kubelet import health
from driver.kubelet.folders import Folders
from driver.kubelet.health import Health
from driver.kubelet.serve import KubeletServer
from driver.kubelet.service import MOST_CALLS
from tests.driver.kubelet.kubelet import Health as Seen
from tests.driver.kubelet.kubelet import Kubelet

A, B = ("node-1", "cpudev000"), ("node-1", "cpudev001")
DEVICES = [SimpleNamespace(name=name) for _, name in (A, B)]


class Nobody:
    """A desk that is not asked."""

    async def prepare(self, ref):
        raise AssertionError

    unprepare = prepare


@pytest.fixture
def conditions() -> Conditions:
    return Conditions()


@pytest.fixture
def kubelet(short_path, conditions):
    server = KubeletServer(Nobody(), conditions, DEVICES, "node-1", Folders(short_path))
    server.start()
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        yield kubelet
    server.stop()


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_all_devices_are_told_at_once_and_again_on_each_change(kubelet, conditions, version) -> None:
    watch = kubelet.watch_health(version, timeout=60)
    assert next(watch) == {A: Seen("healthy"), B: Seen("healthy")}
    conditions.set("TopologyChanged", "CPUs 7 went down")
    ill = Seen("unhealthy", "TopologyChanged: CPUs 7 went down")
    assert next(watch) == {A: ill, B: ill}
    conditions.set("NRIAway", "no runtime")
    assert "NRIAway: no runtime" in next(watch)[A].message
    conditions.clear("TopologyChanged")
    conditions.clear("NRIAway")
    while next(watch) != {A: Seen("healthy"), B: Seen("healthy")}:
        pass
    watch.close()


def test_health_is_told_again_without_a_change(short_path, monkeypatch) -> None:
    monkeypatch.setattr(health, "PERIOD", 0.05)
    server = KubeletServer(Nobody(), Conditions(), DEVICES, "node-1", Folders(short_path))
    server.start()
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        watch = kubelet.watch_health(timeout=60)
        assert [next(watch) for _ in range(3)] == [{A: Seen("healthy"), B: Seen("healthy")}] * 3
        watch.close()
    server.stop()


def test_a_message_is_no_longer_than_the_kubelet_keeps(conditions) -> None:
    conditions.set("NRIAway", "x" * 5000)
    reply = Health(DEVICES, "node-1", conditions).now()
    assert {len(device.message) for device in reply.devices} == {1024}


def test_with_too_many_streams_the_oldest_ends_and_claims_are_still_served(kubelet, conditions) -> None:
    watches = [kubelet.watch_health(timeout=120) for _ in range(health.MOST_STREAMS + 2)]
    for watch in watches:
        assert len(next(watch)) == 2
    assert [list(watch) for watch in watches[:2]] == [[], []]
    conditions.set("NRIAway", "no runtime")
    assert all(next(watch)[A].status == "unhealthy" for watch in watches[2:])
    assert kubelet.unprepare() == {}
    for watch in watches:
        watch.close()


def deaf(path: Path) -> socket.socket:
    """A stream whose reader allows the server to send nothing (RFC 9113: a window of 0 bytes)."""
    method = "/v1.DRAResourceHealth/NodeWatchResources"
    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    texts = ((name.encode(), value.encode()) for name, value in fields.items())
    headers = b"".join(b"\0" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in texts)
    frames = [(4, 0, 0, struct.pack(">HI", 4, 0)), (1, 4, 1, headers), (0, 1, 1, bytes(5))]
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    for kind, flags, stream, data in frames:
        sock.sendall(struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data)
    return sock


def test_streams_that_nobody_reads_do_not_keep_the_kubelet_out(kubelet, short_path, monkeypatch) -> None:
    begun = threading.Semaphore(0)
    now = Health.now
    monkeypatch.setattr(Health, "now", lambda self: (begun.release(), now(self))[1])
    endpoint = Folders(short_path).socket
    sockets = []
    for _ in range(MOST_CALLS + 3 * health.MOST_STREAMS):
        sockets.append(deaf(endpoint))
        assert begun.acquire(timeout=30), "a stream is not served"
    assert kubelet.unprepare() == {}
    assert len(next(kubelet.watch_health(timeout=60))) == 2
    for sock in sockets:
        sock.close()


def test_a_kubelet_that_hangs_up_leaves_nothing_behind(kubelet, conditions) -> None:
    for _ in range(20):
        watch = kubelet.watch_health(timeout=60)
        next(watch)
        watch.close()
    watch = kubelet.watch_health(timeout=60)
    assert len(next(watch)) == 2
    watch.close()


def test_streams_end_when_the_server_stops(short_path) -> None:
    server = KubeletServer(Nobody(), Conditions(), DEVICES, "node-1", Folders(short_path))
    server.start()
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        watch = kubelet.watch_health(timeout=120)
        next(watch)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert list(watch) == []
        stopping.join(60)
        assert not stopping.is_alive()
