"""The runtime's end of an NRI connection, written apart from the driver's: neither hides the other's faults."""

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from queue import Empty as NothingYet
from queue import SimpleQueue

from google.protobuf.message import Message

from driver.protos.nri_pb2 import Empty
from driver.protos.ttrpc_pb2 import Request, Response

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
FATAL = 13


class PluginError(Exception):
    """The plugin answered with an error."""


class PluginGone(Exception):  # noqa: N818 - an event more than an error
    """The plugin did not answer in time, or its connection is at its end."""


class PluginEnd:
    """One plugin's connection. ``serve`` answers what the plugin calls: method and payload to a reply. ``timed``:
    told of each call to the plugin, and how many seconds it took."""

    def __init__(
        self,
        sock: socket.socket,
        serve: Callable[[str, bytes], Message],
        timed: Callable[[str, float], None] = lambda method, seconds: None,
    ) -> None:
        self.sock, self.serve, self.timed = sock, serve, timed
        self.closed = threading.Event()
        self.faults: list[str] = []
        self._replies: dict[int, SimpleQueue[Response | None]] = {}
        self._streams = itertools.count(1, 2)
        self._write = threading.Lock()
        self._last_stream = -1
        self._buffers = {1: b"", 2: b""}
        threading.Thread(target=self._read_all, daemon=True).start()

    def call(self, method: str, message: Message, timeout: float) -> bytes:
        """Call the plugin, as the runtime does."""
        began = time.perf_counter()
        try:
            return self._call(method, message, timeout)
        finally:
            self.timed(method, time.perf_counter() - began)

    def _call(self, method: str, message: Message, timeout: float) -> bytes:
        if self.closed.is_set():
            raise PluginGone
        queue: SimpleQueue[Response | None] = SimpleQueue()
        request = Request(service=PLUGIN_SERVICE, method=method, payload=message.SerializeToString())
        with self._write:
            stream = next(self._streams)
            self._replies[stream] = queue
            self._send(1, stream, 1, request.SerializeToString())
        if self.closed.is_set():
            queue.put(None)
        try:
            reply = queue.get(timeout=timeout)
        except NothingYet:
            self.close()
            raise PluginGone from None
        if reply is None:
            raise PluginGone
        if reply.status.code:
            raise PluginError(reply.status.message)
        return reply.payload

    def close(self) -> None:
        """End the connection."""
        self.closed.set()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        for queue in list(self._replies.values()):
            queue.put(None)

    def raw(self, data: bytes) -> None:
        """Send any bytes."""
        with self._write:
            self.sock.sendall(data)

    def _send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        message = struct.pack(">IIBB", len(payload), stream, kind, 0) + payload
        try:
            for part in (message[:10], message[10:]):
                self.sock.sendall(struct.pack(">II", connection, len(part)) + part)
        except OSError:
            self.close()

    def _read_all(self) -> None:
        try:
            while True:
                connection, length = struct.unpack(">II", self._exactly(8))
                self._frame(connection, self._exactly(length))
        except (OSError, EOFError):
            pass
        except AssertionError as fault:
            self.faults.append(str(fault))
        finally:
            self.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def _frame(self, connection: int, data: bytes) -> None:
        begun = self._buffers[connection]
        assert begun or len(data) <= 4096, f"a message begins with a frame of {len(data)} bytes"
        if begun:
            missing = struct.unpack(">I", begun[:4])[0] + 10 - len(begun)
            assert len(data) == missing or len(data) <= 4096, f"{len(data)} bytes where {missing} are missing"
        self._buffers[connection] = self._messages(connection, begun + data)

    def _messages(self, connection: int, data: bytes) -> bytes:
        while len(data) >= 10:
            length, stream, kind, _ = struct.unpack(">IIBB", data[:10])
            assert length <= 4 << 20, f"a message of {length} bytes"
            if len(data) < 10 + length:
                break
            self._message(connection, stream, kind, data[10 : 10 + length])
            data = data[10 + length :]
        return data

    def _message(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        if connection == 1:
            assert kind == 2, "the plugin calls on the connection it is called on"
            if queue := self._replies.pop(stream, None):
                queue.put(Response.FromString(payload))
            return
        assert kind == 1, "the plugin answers on the connection it calls on"
        assert stream % 2, f"stream id {stream} is even"
        assert stream > self._last_stream, f"stream id {stream} comes after {self._last_stream}"
        self._last_stream = stream
        threading.Thread(target=self._answer, args=(stream, Request.FromString(payload)), daemon=True).start()

    def _answer(self, stream: int, request: Request) -> None:
        response = Response()
        try:
            response.payload = (self.serve(request.method, request.payload) or Empty()).SerializeToString()
        except Exception as error:
            response.status.code, response.status.message = FATAL, str(error)
        with self._write:
            self._send(2, stream, 2, response.SerializeToString())
