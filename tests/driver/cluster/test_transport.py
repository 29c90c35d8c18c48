"""The bounds of one exchange, without the threads and the patience of those who ask."""

import socket
import ssl
import threading
from collections.abc import Iterator

import httpx2
import pytest

from driver.cluster import transport as transport_module
from driver.cluster.transport import BoundedTransport, TooLongError
from tests.driver.cluster.api_server import ApiServer
from tests.driver.cluster.waiting import until


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> BoundedTransport:
    """Waits for ever where it is not told otherwise."""
    monkeypatch.setattr(transport_module, "SLOWEST", 6000)
    return BoundedTransport(ssl.create_default_context())


@pytest.fixture
def http(transport: BoundedTransport) -> Iterator[httpx2.Client]:
    with httpx2.Client(transport=transport, timeout=None) as client:
        yield client


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections, and neither reads nor says anything; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        yield f"127.0.0.1:{server.getsockname()[1]}"


DRIPS = [
    (200, b" " * 100_000, 0, 0.01),
    (503, b" " * 100_000, 0, 0.01),
    (200, b"", 0, 0.01, (), b"HTTP/1.1 200 OK\r\nX: " + b"a" * 50_000),
]


@pytest.mark.parametrize("fault", DRIPS, ids=["body", "body-of-an-error", "head"])
@pytest.mark.parametrize("bound", ["who asks", "an outer one", "nobody"])
def test_an_answer_that_drips_is_given_up(
    server: ApiServer,
    transport: BoundedTransport,
    http: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[int, bytes],
    bound: str,
) -> None:
    server.fault = lambda method, path: fault
    if bound == "nobody":
        monkeypatch.setattr(transport_module, "SLOWEST", 0.3)
    with (
        transport.within(0.3 if bound == "an outer one" else 600),
        transport.within(0.3 if bound == "who asks" else 600),
        pytest.raises(httpx2.ReadTimeout, match="not complete after"),
    ):
        http.get(server.url)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_takes_nothing_and_says_nothing_is_given_up(
    transport: BoundedTransport, http: httpx2.Client, silent: str, scheme: str
) -> None:
    with transport.within(0.3), pytest.raises(httpx2.TimeoutException):
        http.post(f"{scheme}://{silent}", content=b"x" * (16 << 20))


def test_the_bounds_of_one_exchange_are_not_those_of_the_next(
    server: ApiServer, transport: BoundedTransport, http: httpx2.Client
) -> None:
    for _ in range(5):
        with transport.within(600):
            assert http.get(f"{server.url}/api/v1/nodes/node-1").is_success
    server.fault = lambda method, path: (200, b"x" * (transport_module.LARGEST - 10))
    for _ in range(3):
        assert len(http.get(server.url).content) == transport_module.LARGEST - 10


@pytest.mark.parametrize(
    ("status", "largest"), [(200, transport_module.LARGEST), (500, transport_module.LARGEST_ERROR)]
)
def test_a_body_has_a_bound_and_that_of_an_error_a_lower_one(
    server: ApiServer, http: httpx2.Client, status: int, largest: int
) -> None:
    server.fault = lambda method, path: (status, b"x" * largest)
    assert http.get(server.url).status_code == status
    server.fault = lambda method, path: (status, b"x" * (largest + 1))
    with pytest.raises(TooLongError):
        http.get(server.url)


def test_whoever_waits_is_woken_and_nobody_can_ask_any_more(
    transport: BoundedTransport, http: httpx2.Client, silent: str
) -> None:
    ends: list[Exception] = []

    def ask() -> None:
        try:
            http.get(f"http://{silent}")
        except httpx2.HTTPError as error:
            ends.append(error)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(transport._network._open) == 3)
    transport.cut()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 3
    with pytest.raises(httpx2.ConnectError, match="the driver is ending"):
        http.get(f"http://{silent}")
    assert not transport._network._open
