"""HTTP within bounds: an answer that is too long, too slow or packed ends in an error, not in our memory."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import httpcore2
import httpx2

from driver.cluster.network import Network

TIMEOUT, SLOWEST = 5.0, 15.0
"""Seconds without a byte, and for one exchange as a whole. The kubelet waits 45 for us."""

LARGEST = 8 << 20
"""Bytes of one answer, of which Python may make 20 times as many. Objects end at 1.5 MiB, etcd's own limit."""

WATCH = 300
"""Seconds after which the server is to end a watch, so that we look for ourselves from time to time."""

KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
"""A watch is silent for minutes; without these a server that is cut off would go unnoticed as long."""


class WatchEndedError(httpx2.TransportError):
    """The server has ended a watch, as it may. lightkube alone would ask again at once, and again."""


class BoundedTransport(httpx2.HTTPTransport):
    """Requests that ask to ``watch`` may last; all others must be answered soon."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._network = Network()
        # httpx2 takes no network of ours, httpcore2 does.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=verify, socket_options=KEEPALIVE, network_backend=self._network
        )
        self._watches: set[socket.socket] = set()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """What this thread asks for inside is answered, or fails, in so many seconds, or ``SLOWEST``."""
        return self._network.within(seconds)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, whose body is read within bounds. Raises ``httpx2.HTTPError``."""
        with self._network.within(SLOWEST):
            return self._handle(request)

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
            response.stream = _Bounded(response.stream)
            # lightkube does not close a watch that is refused; the connection would never come back.
            response.read()
        return response

    def end_watches(self) -> None:
        """Wake those who watch: what they wait for ends with an error."""
        for connection in list(self._watches):
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _watched(self, response: httpx2.Response) -> "_Watched":
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._watches.add(connection)
        return _Watched(response.stream, connection, self._watches)


class _Bounded(httpx2.SyncByteStream):
    """A body of at most ``LARGEST`` bytes."""

    def __init__(self, inner: object) -> None:
        assert isinstance(inner, httpx2.SyncByteStream)
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        try:
            for part in self._inner:
                size += len(part)
                if size > LARGEST:
                    raise httpx2.ReadError(f"the answer is longer than {LARGEST >> 20} MiB")
                yield part
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection back, or up."""
        self._inner.close()


class _Watched(_Bounded):
    """The body of a watch, which lasts longer. Its end is an error."""

    def __init__(self, inner: object, connection: socket.socket, watches: set[socket.socket]) -> None:
        super().__init__(inner)
        self._end = time.monotonic() + WATCH + SLOWEST
        self._connection, self._watches = connection, watches

    def __iter__(self) -> Iterator[bytes]:
        for part in super().__iter__():
            if time.monotonic() > self._end:
                raise httpx2.ReadTimeout(f"the watch has not ended after {WATCH + SLOWEST:.0f} s")
            yield part
        raise WatchEndedError("the watch has ended")

    def close(self) -> None:
        """Give the connection up."""
        self._watches.discard(self._connection)
        super().close()
