"""gRPC servers in an event loop, in a thread of their own."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from models import BadInputError

if TYPE_CHECKING:
    from driver.kubelet.handlers import Handler

log = logging.getLogger(__name__)

OPTIONS = (
    ("grpc.max_receive_message_length", 2**20),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 30_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_allowed_incoming_connections", 4096),
)
"""Bytes of a message; and what ends connections of which nothing comes: at first, while no call is under way, and
while one is, for a peer that answers no ping has stopped. The kubelet's is never idle: it watches health."""

OPENING = 3.0
"""Seconds in which the loop does what takes some milliseconds."""

Told = TypeVar("Told")


class DeafError(Exception):
    """The event loop does not do what it is told."""


@dataclass(frozen=True)
class Door:
    """A socket, and who answers at it."""

    path: Path
    handlers: "list[Handler]"


class Serving:
    """Serves at some doors, from ``open`` to ``close``. To be used from other threads than its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelet", daemon=True)
        self._servers: dict[Path, grpc.aio.Server] = {}

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` where there can be none."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs and the loop with it."""
        try:
            self.do(asyncio.sleep(0), OPENING)
        except DeafError:
            return False
        return True

    def open(self, doors: Iterable[Door]) -> None:
        """Bind the sockets, one after the other. Raises ``BadInputError`` where one cannot be bound."""
        for door in doors:
            self.do(self._open(door), OPENING)
            log.info("serving at %s", door.path)

    def close(self, grace: float) -> None:
        """Take no more calls, let those under way end within so many seconds, remove the sockets in reverse."""
        for path, server in reversed(list(self._servers.items())):
            with suppress(DeafError):
                self.do(server.stop(grace), grace + 1.0)
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._servers.clear()

    def stop(self) -> None:
        """End the loop and its thread, if it listens. No calls may be under way."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread.is_alive():
            self._thread.join(OPENING)
        if not self._thread.is_alive():
            self._loop.close()

    def do(self, coroutine: Coroutine[Any, Any, Told], seconds: float) -> Told:
        """What it returns, and what it raises; ``DeafError`` if that is not within so many seconds."""
        try:
            done = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise DeafError("the event loop is closed") from None
        try:
            return done.result(seconds)
        except TimeoutError:
            done.cancel()
            raise DeafError(f"the event loop has not done it in {seconds:g} s") from None

    async def _open(self, door: Door) -> None:
        server = grpc.aio.server(handlers=door.handlers, options=OPTIONS)
        try:
            server.add_insecure_port(f"unix:{door.path}")
        except RuntimeError as error:
            raise BadInputError(f"the socket cannot be bound: {error}", file=str(door.path)) from None
        await server.start()
        self._servers[door.path] = server
