"""The endpoints, over real sockets."""

import socket
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from driver.conditions import Conditions
from driver.http import LONGEST_HEAD, MOST_CONNECTIONS, Endpoints
from driver.metrics import Metrics
from models import BadInputError

LOCAL = "127.0.0.1"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def serving(address=f"{LOCAL}:0", dead=tuple, unready=dict):
    metrics = Metrics()
    metrics.fell_back("timeout")
    endpoints = Endpoints(address, metrics.registry, dead, unready)
    endpoints.start()
    try:
        yield endpoints.port
    finally:
        endpoints.stop()


def get(port, path, host=LOCAL):
    try:
        with DIRECT.open(f"http://{host}:{port}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_those_of_the_registry():
    with serving() as port:
        status, text = get(port, "/metrics")
    assert status == 200
    assert 'cpusat_driver_fallbacks_total{reason="timeout"} 1.0' in text


def test_a_driver_whose_threads_live_is_healthy_and_one_with_a_dead_thread_is_not():
    dead = []
    with serving(dead=lambda: dead) as port:
        assert get(port, "/healthz") == (200, "ok\n")
        dead += ["nri", "watch"]
        assert get(port, "/healthz") == (503, "ended: nri, watch\n")


def test_readiness_fails_with_the_reasons_while_conditions_hold():
    conditions = Conditions()
    with serving(unready=conditions.current) as port:
        assert get(port, "/readyz") == (200, "ok\n")
        conditions.set("NRIAway", "no runtime at /run/nri.sock")
        conditions.set("ReservedOffline", "CPU 3 is offline")
        assert get(port, "/readyz") == (
            503,
            "NRIAway: no runtime at /run/nri.sock\nReservedOffline: CPU 3 is offline\n",
        )
        conditions.clear("NRIAway")
        conditions.clear("ReservedOffline")
        assert get(port, "/readyz") == (200, "ok\n")


def test_other_paths_are_told_which_there_are():
    with serving() as port:
        assert get(port, "/debug") == (404, "there are /metrics, /healthz and /readyz\n")


def test_a_page_that_fails_says_so_and_the_next_one_is_served():
    def fail():
        raise RuntimeError("no threads")

    with serving(dead=fail) as port:
        assert get(port, "/healthz") == (500, "see the log\n")
        assert get(port, "/readyz") == (200, "ok\n")


def test_an_address_in_use_is_one_clear_error():
    with (
        serving() as port,
        pytest.raises(BadInputError, match=f"{LOCAL}:{port} cannot be listened at: Address already"),
    ):
        Endpoints(f"{LOCAL}:{port}", Metrics().registry, tuple, dict)


def test_a_driver_that_comes_again_after_a_probe_has_its_port_at_once():
    with serving() as port:
        get(port, "/healthz")
    with serving(f"{LOCAL}:{port}") as again:
        assert (again, get(port, "/healthz")[0]) == (port, 200)


@pytest.mark.parametrize("address", ["8080", "host", ":port", ":99999", "::1:8080"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(BadInputError, match=r"bindAddress: .* is no "):
        Endpoints(address, Metrics().registry, tuple, dict)


@pytest.mark.parametrize(
    ("address", "hosts"), [(":0", [LOCAL]), ("[::]:0", [LOCAL, "[::1]"]), ("[::1]:0", ["[::1]"])]
)
def test_addresses_of_both_families_can_be_listened_at(address, hosts):
    if "[" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(address) as port:
        assert [get(port, "/healthz", host)[0] for host in hosts] == [200] * len(hosts)


def test_many_silent_clients_do_not_keep_the_probe_out():
    with serving() as port:
        clients = [socket.create_connection((LOCAL, port)) for _ in range(2 * MOST_CONNECTIONS)]
        assert get(port, "/healthz") == (200, "ok\n")
        for client in clients:
            client.close()


def test_a_request_without_end_is_cut_off_without_an_answer():
    with serving() as port, socket.create_connection((LOCAL, port)) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\nX: " + b"x" * LONGEST_HEAD)
        client.settimeout(60)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
        assert get(port, "/healthz")[0] == 200
