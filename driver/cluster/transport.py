"""HTTP within bounds: an answer that is too long, too slow or packed ends in an error, not in our memory."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import httpcore2
import httpx2

from driver.cluster.network import Network
from driver.cluster.network import TooLongError as _TooLongError

TIMEOUT, SLOWEST = 5.0, 15.0
"""Seconds without a byte, and for one exchange as a whole. The kubelet waits 45 for us."""

LARGEST, LARGEST_ERROR = 2 << 20, 64 << 10
"""Bytes of one answer, and of one that says that it is none. Objects end at 1.5 MiB, etcd's own limit."""

HEAD = 128 << 10
"""Bytes that head, chunks and interim answers may have besides."""

WATCH = 300
"""Seconds after which the server is to end a watch, so that we look for ourselves from time to time."""

CONNECTIONS, IDLE = 16, 30.0
"""At the same time; and seconds that one is kept for the next request. API servers keep them for longer."""

KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
"""A watch is silent for minutes; without these a server that is cut off would go unnoticed as long."""


class TooLongError(httpx2.ReadError):
    """The answer is longer than we read."""


class BoundedTransport(httpx2.HTTPTransport):
    """Requests that ask to ``watch`` may last; all others must be answered soon."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._network = Network()
        # httpx2 takes no network of ours, httpcore2 does.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=verify,
            max_connections=CONNECTIONS,
            keepalive_expiry=IDLE,
            socket_options=KEEPALIVE,
            network_backend=self._network,
        )
        self._watches: set[socket.socket] = set()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """What this thread asks for inside is answered, or fails, in so many seconds, or ``SLOWEST``."""
        return self._network.within(seconds, LARGEST + HEAD)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, whose body is read within bounds. Raises ``httpx2.HTTPError``."""
        with self.within(SLOWEST):
            try:
                return self._handle(request)
            except httpx2.ReadError as error:
                if isinstance(error.__cause__, _TooLongError):
                    raise TooLongError(str(error), request=request) from None
                raise

    def end_watches(self) -> None:
        """Wake those who watch: what they wait for ends with an error."""
        for connection in list(self._watches):
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def cut(self) -> None:
        """Wake all who wait for the server, and ask it nothing from now on."""
        self._network.close()

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        watch = "watch" in request.url.params
        if watch:
            request.extensions["timeout"]["read"] = WATCH + TIMEOUT
        response = super().handle_request(request)
        if "content-encoding" in response.headers:
            response.close()
            raise httpx2.DecodingError("the answer is packed, which nobody asked for", request=request)
        if watch and response.is_success:
            response.stream = self._watched(response)
        else:
            response.stream = _Bounded(response.stream, LARGEST if response.is_success else LARGEST_ERROR)
            response.read()
        return response

    def _watched(self, response: httpx2.Response) -> "_Watched":
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._watches.add(connection)
        return _Watched(response.stream, connection, self._watches)


class _Bounded(httpx2.SyncByteStream):
    """A body of at most so many bytes."""

    def __init__(self, inner: object, largest: int) -> None:
        assert isinstance(inner, httpx2.SyncByteStream)
        self._inner, self._largest = inner, largest

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        try:
            for part in self._inner:
                size += len(part)
                if size > self._largest:
                    raise TooLongError(f"the answer is longer than {self._largest >> 10} KiB")
                yield part
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection back, or up."""
        self._inner.close()


class _Watched(_Bounded):
    """The body of a watch, which may last."""

    def __init__(self, inner: object, connection: socket.socket, watches: set[socket.socket]) -> None:
        super().__init__(inner, LARGEST)
        self._end = time.monotonic() + WATCH + SLOWEST
        self._connection, self._watches = connection, watches

    def __iter__(self) -> Iterator[bytes]:
        for part in super().__iter__():
            if time.monotonic() > self._end:
                raise httpx2.ReadTimeout(f"the watch has not ended after {WATCH + SLOWEST:.0f} s")
            yield part

    def close(self) -> None:
        """Give the connection up."""
        self._watches.discard(self._connection)
        super().close()
