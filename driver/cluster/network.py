"""Sockets that keep one deadline and one size for a whole exchange, however slowly the other side lets it drip."""

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpcore2


class TooLongError(httpcore2.ReadError):
    """More bytes came than an exchange may have."""


@dataclass
class _Bounds:
    """Of an exchange: when it ends (monotonic seconds), how long that is, and how many bytes may still come."""

    end: float
    seconds: float
    bytes: int

    def left(self, timeout: float | None) -> float:
        """Seconds that one step may take. Raises ``httpcore2.ReadTimeout`` once there are none left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout(f"the exchange is not complete after {self.seconds:g} s")
        return left if timeout is None else min(left, timeout)

    def take(self, size: int) -> None:
        """So many bytes have come. Raises ``TooLongError``."""
        self.bytes -= size
        if self.bytes < 0:
            raise TooLongError("the answer is too long")


class Network(httpcore2.NetworkBackend):
    """Opens connections for httpx2. What a thread does on them inside ``within`` keeps to its bounds."""

    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()
        self._thread = threading.local()
        self._open: set[_Stream] = set()
        self._closed = False

    @contextmanager
    def within(self, seconds: float, size: int) -> Iterator[None]:
        """What this thread does on its connections takes no longer than so many seconds and reads no more than so
        many bytes, all together. An earlier end that was set before stays."""
        former = self.bounds()
        mine = _Bounds(time.monotonic() + seconds, seconds, size)
        if former is not None and former.end < mine.end:
            mine.end, mine.seconds = former.end, former.seconds
        self._thread.bounds = mine
        try:
            yield
        finally:
            self._thread.bounds = former

    def bounds(self) -> _Bounds | None:
        """What this thread keeps to."""
        return getattr(self._thread, "bounds", None)

    @contextmanager
    def step(self, timeout: float | None) -> Iterator[float | None]:
        """Seconds that one step inside may take. Raises ``httpcore2.ReadTimeout`` once there are none left."""
        bounds = self.bounds()
        try:
            yield bounds.left(timeout) if bounds else timeout
        except httpcore2.TimeoutException:
            if bounds:
                bounds.left(timeout)
            raise

    def close(self) -> None:
        """Cut every connection, and open none from now on: whoever waits for one gets an error at once."""
        self._closed = True
        for stream in list(self._open):
            stream.cut()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection. Raises httpcore2's errors."""
        if self._closed:
            raise httpcore2.ConnectError("the driver is ending")
        with self.step(timeout) as left:
            return self.keep(self._inner.connect_tcp(host, port, left, local_address, socket_options))

    def keep(self, inner: httpcore2.NetworkStream) -> "_Stream":
        """The stream, which is cut at ``close``."""
        stream = _Stream(inner, self)
        self._open.add(stream)
        if self._closed:
            stream.cut()
        return stream

    def forget(self, stream: "_Stream") -> None:
        """It is closed."""
        self._open.discard(stream)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, network: Network) -> None:
        self._inner, self._network = inner, network
        self._socket: socket.socket = inner.get_extra_info("socket")

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._network.step(timeout) as left:
            data = self._inner.read(max_bytes, left)
        if bounds := self._network.bounds():
            bounds.take(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        while rest:
            with self._network.step(timeout) as left:
                rest = rest[self._send(rest, left) :]

    def _send(self, data: memoryview, timeout: float | None) -> int:
        try:
            self._socket.settimeout(timeout)
            return self._socket.send(data)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(error) from error
        except OSError as error:
            raise httpcore2.WriteError(error) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """The same with TLS. Python ends the handshake as a whole at the timeout."""
        self._network.forget(self)
        with self._network.step(timeout) as left:
            return self._network.keep(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's own interface
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._network.forget(self)
        self._inner.close()

    def cut(self) -> None:
        """End it under whoever waits for it in another thread."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
