"""``/metrics``, ``/healthz`` and ``/readyz`` over HTTP, for Prometheus and the kubelet's probes."""

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from driver.config import read_address
from driver.threads import started_pool
from models import BadInputError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

LONGEST_HEAD, PATIENCE = 16 * 1024, 5.0
"""Bytes of a request, and seconds in which they must have come."""

MOST_CONNECTIONS = 16
"""At once, each with a thread that is there from the start. Any pod can reach us; with more, the oldest is closed,
so that probes always get through."""

Page = tuple[HTTPStatus, str]

NOTHING_HERE = (HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")


class Endpoints:
    """Serves at an address such as ``:8080``, in threads of its own.

    ``dead`` names the threads that should live and do not; ``unready`` says by name what keeps the driver from
    serving. Both are called for each probe. Raises ``BadInputError`` where the address cannot be had.
    """

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        dead: Callable[[], Iterable[str]],
        unready: Callable[[], Mapping[Any, str]],
    ) -> None:
        self._pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: _health(dead()),
            "/readyz": lambda: _readiness(unready()),
        }
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._server = _bind(address)
        self._server.set_app(self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer. Raises ``RuntimeError`` where there can be no threads."""
        self._server.threads = started_pool(MOST_CONNECTIONS, "http")
        self._thread.start()
        log.info("metrics and probes are served at port %d", self.port)

    def stop(self) -> None:
        """End it."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.threads.shutdown(wait=False)
        self._server.server_close()

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        try:
            if path == "/metrics":
                return self._metrics(environ, start_response)
            status, text = self._pages[path]() if path in self._pages else NOTHING_HERE
        except Exception:
            log.exception("%s failed", path)
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "see the log"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]


def _health(dead: Iterable[str]) -> Page:
    names = ", ".join(dead)
    return (HTTPStatus.SERVICE_UNAVAILABLE, f"ended: {names}") if names else (HTTPStatus.OK, "ok")


def _readiness(unready: Mapping[Any, str]) -> Page:
    reasons = "\n".join(f"{name}: {message}" for name, message in unready.items())
    return (HTTPStatus.SERVICE_UNAVAILABLE, reasons) if reasons else (HTTPStatus.OK, "ok")


def _bind(address: str) -> "_Server":
    try:
        host, port = read_address(address)
        return _Server((host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0"), port), _Handler)
    except ValueError as error:
        raise BadInputError(str(error), place="bindAddress") from None
    except OSError as error:
        reason = f"{address} cannot be listened at: {error.strerror or error}; give another bindAddress"
        raise BadInputError(reason, place="bindAddress") from None


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def setup(self) -> None:
        """Read the head within bounds, instead of letting a slow or endless one hold the thread."""
        super().setup()
        self.rfile = io.BytesIO(_read_head(self.connection))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the signature is http.server's
        """Probes come every few seconds: say nothing."""


def _read_head(connection: socket.socket) -> bytes:
    """What comes up to the first empty line, or nothing if that does not come."""
    head, end = b"", time.monotonic() + PATIENCE
    try:
        while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD and time.monotonic() < end:
            received = connection.recv(LONGEST_HEAD - len(head))
            head += received
            if not received:
                break
    except OSError:
        return b""
    return head if b"\r\n\r\n" in head else b""


class _Server(ThreadingMixIn, WSGIServer):
    block_on_close = False
    threads: ThreadPoolExecutor
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """``::`` takes IPv4 too. The host's name is not looked up, which may take the resolver seconds.

        A port whose former connections have yet to run out can be had at once: after a crash we are here again.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Make room for the newest connection, then have a thread serve it."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _cut(oldest)
        self.threads.submit(self.process_request_thread, request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Clients go away as they like."""
        log.debug("a client at %s went away", client_address[0], exc_info=True)


def _cut(connection: socket.socket) -> None:
    """Wake the thread that waits for it, which then closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        log.debug("a connection was closed already")
