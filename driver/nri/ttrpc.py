"""Remote calls in both directions over one socket, as containerd's ttrpc has them."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from struct import Struct
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError, Message

from driver.nri.mux import LARGEST, PATIENCE, PLUGIN, RUNTIME, Mux, WireError
from driver.protos.ttrpc_pb2 import Request, Response
from models import CpusatError

log = logging.getLogger(__name__)

HEADER = Struct(">IIBB")
REQUEST, RESPONSE = 1, 2
LARGEST_PAYLOAD = LARGEST - HEADER.size

STUCK = 10.0
"""Seconds after which an answer that is not finished never will be. The runtime waits for two."""

UNKNOWN, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 2, 9, 12, 13
"""Status codes, those of gRPC."""

RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

Answer = Callable[[str, bytes], Message]
"""From a method and its payload to the reply. Raises ``CallError`` to refuse."""


class CallError(CpusatError):
    """A call was refused: by us, or by the other side."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class Inbox:
    """Puts the frames of one connection id together to messages. Holds less than two of the largest."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._since = 0.0

    def feed(self, frame: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Stream id, type and payload of each message that the frame completes. Raises ``WireError``."""
        if not self._bytes:
            self._since = time.monotonic()
        self._bytes += frame
        while len(self._bytes) >= HEADER.size:
            length, stream, kind, _ = HEADER.unpack_from(self._bytes)
            if length > LARGEST_PAYLOAD:
                raise WireError(f"a message of {length} bytes is longer than the {LARGEST_PAYLOAD} allowed")
            end = HEADER.size + length
            if len(self._bytes) < end:
                return
            payload = bytes(self._bytes[HEADER.size : end])
            del self._bytes[:end]
            self._since = time.monotonic()
            yield stream, kind, payload

    def check(self) -> None:
        """Raise ``WireError`` if a message was begun long ago and is not finished."""
        if self._bytes and time.monotonic() > self._since + PATIENCE:
            raise WireError("a message was begun and not finished in time")


class Connection:
    """A plugin's connection to the runtime. A thread of its own reads, and answers what the runtime calls.

    ``ended`` is set when it is over, ``why`` says why.
    """

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self._mux, self._answer = Mux(sock), answer
        self._inboxes = {PLUGIN: Inbox(), RUNTIME: Inbox()}
        self._lock = threading.Lock()
        self._stream = -1
        self._waiting = WeakValueDictionary[int, Future[bytes]]()
        """Calls by stream, as long as anybody waits for the reply."""
        self.ended, self.why = threading.Event(), ""
        self._answering_since: float | None = None
        self._reader = threading.Thread(target=self._run, name="nri-reader", daemon=True)
        self._reader.start()

    def alive(self) -> bool:
        """Whether the runtime is answered when it calls, unless the connection has ended."""
        since = self._answering_since
        late = since is not None and time.monotonic() > since + STUCK
        return self.ended.is_set() or (self._reader.is_alive() and not late)

    def call(self, method: str, message: Message, timeout: float) -> bytes:
        """Call the runtime. Raises ``CallError`` if it refuses, ``TimeoutError``, ``OSError``."""
        return self.begin(method, message).result(timeout)

    def begin(self, method: str, message: Message) -> Future[bytes]:
        """Call the runtime without waiting for the reply. Raises ``OSError``."""
        request = Request(service=RUNTIME_SERVICE, method=method, payload=message.SerializeToString())
        reply: Future[bytes] = Future()
        with self._lock:
            if self.ended.is_set():
                raise ConnectionError(self.why)
            self._stream += 2
            call = _packed(self._stream, REQUEST, request)
            self._waiting[self._stream] = reply
            self._mux.send(RUNTIME, call)
        return reply

    def close(self) -> None:
        """End it, and wait until its thread has answered what it was at."""
        self._mux.close()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _run(self) -> None:
        try:
            while True:
                self._receive()
        except (EOFError, OSError) as error:
            self.why = f"the connection ended: {error or 'closed'}"
        except (WireError, DecodeError) as error:
            self.why = f"the runtime does not keep to the protocol: {error}"
            log.error("connection to the runtime given up: %s", error)
        finally:
            self._mux.close()
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.ended.set()
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for reply in waiting:
            reply.set_exception(ConnectionError(self.why))

    def _receive(self) -> None:
        frame = self._mux.receive()
        for inbox in self._inboxes.values():
            inbox.check()
        connection, part = frame or (0, b"")
        if connection not in self._inboxes:
            return
        for stream, kind, payload in self._inboxes[connection].feed(part):
            if (connection, kind) == (PLUGIN, REQUEST):
                self._mux.send(PLUGIN, _packed(stream, RESPONSE, self._reply(Request.FromString(payload))))
            elif (connection, kind) == (RUNTIME, RESPONSE):
                self._take(stream, Response.FromString(payload))
            else:
                raise WireError(f"message of type {kind} on connection {connection}")

    def _reply(self, request: Request) -> Response:
        response = Response()
        self._answering_since = time.monotonic()
        try:
            response.payload = self._answer(request.method, request.payload).SerializeToString()
        except CallError as error:
            response.status.code, response.status.message = error.code, error.message
        except DecodeError as error:
            response.status.code, response.status.message = INTERNAL, f"{request.method} cannot be read: {error}"
        except Exception as error:
            log.exception("defect while answering %s", request.method[:80])
            response.status.code, response.status.message = INTERNAL, f"defect of the driver: {error!r}"
        finally:
            self._answering_since = None
        return response

    def _take(self, stream: int, response: Response) -> None:
        reply = self._waiting.pop(stream, None)
        if reply is None:
            return
        if response.status.code:
            reply.set_exception(CallError(response.status.code, response.status.message))
        else:
            reply.set_result(response.payload)


def _packed(stream: int, kind: int, message: Message) -> bytes:
    payload = message.SerializeToString()
    if len(payload) > LARGEST_PAYLOAD:
        raise WireError(f"our own message of {len(payload)} bytes is longer than the {LARGEST_PAYLOAD} allowed")
    return HEADER.pack(len(payload), stream, kind, 0) + payload
