"""Connections to the runtime: the lasting one, and short ones that bring changes to it."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import Message

from driver.names import DRIVER
from driver.nri.container import Container
from driver.nri.glance import Glance, ReadMask
from driver.nri.listing import Listing
from driver.nri.mux import PATIENCE
from driver.nri.registry import Registry
from driver.nri.ttrpc import Answer, Connection
from driver.protos import nri_pb2 as nri

log = logging.getLogger(__name__)

SHORT_NAME = f"{DRIVER}-sync"
INDEX, SHORT_INDEX = "10", "99"
"""Where plugins stand in the runtime's order of asking them: exactly two digits."""

TURN = 60.0
"""Seconds to wait for our turn. The runtime lets plugins in one after the other, and while a container takes its
time to stop gracefully, newer ones let in nobody (containerd #14083)."""

LONG = 3.0
HOLD_SEEN, HOLD_UNSEEN = 1.0, 0.5
"""Seconds that a short connection is held open: without any mask that comes right where the kernel's masks can be
read, in all where not. One that is closed at once loses updates."""

FIRST_PAUSE, PAUSE = 0.001, 0.02
"""Seconds between two looks, at first and in the end: a container's creation may wait for the masks."""


def _nothing() -> None:
    pass


@contextmanager
def session(
    path: Path,
    name: str,
    index: str,
    answer: Answer,
    stopping: threading.Event,
    meanwhile: Callable[[], None] = _nothing,
) -> Iterator[Connection]:
    """A connection that is registered. ``meanwhile`` is called again and again until it is.

    Raises ``OSError``, ``TimeoutError`` or ``CallError``.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        connection = Connection(sock, answer)
    except RuntimeError as error:
        sock.close()
        raise ConnectionError(f"no thread can be had for a connection: {error}") from None
    except BaseException:
        sock.close()
        raise
    try:
        _register(connection, name, index, stopping, meanwhile)
        yield connection
    finally:
        connection.close()


def _register(
    connection: Connection, name: str, index: str, stopping: threading.Event, meanwhile: Callable[[], None]
) -> None:
    reply = connection.begin("RegisterPlugin", nri.RegisterPluginRequest(plugin_name=name, plugin_idx=index))
    end = time.monotonic() + TURN
    while not stopping.is_set() and time.monotonic() < end:
        if wait([reply], PAUSE).done:
            reply.result()
            return
        meanwhile()
    raise TimeoutError("the driver stops" if stopping.is_set() else f"not registered within {TURN:.0f} s")


def look(registry: Registry, kernel: ReadMask, containers: list[Container]) -> None:
    """Read the kernel's masks of containers."""
    masks = [(each, kernel(each.sight.cgroup)) for each in containers]
    registry.looked(masks)


def relay(path: Path, registry: Registry, kernel: ReadMask, glance: Glance, stopping: threading.Event) -> None:
    """Bring changes to the runtime by a second connection: its list, and the reply to it with the updates.

    Ends when the kernel has confirmed them, or a second after the last that it has. Raises as ``session`` does.
    """
    listing = Listing(registry, glance, afresh=False)
    answers: dict[str, Callable[[bytes], Message]] = {
        "Configure": lambda _: nri.ConfigureResponse(events=1 << (nri.POST_UPDATE_CONTAINER - 1)),
        "Synchronize": listing.take,
    }
    with session(
        path, SHORT_NAME, SHORT_INDEX, lambda method, payload: answers.get(method, _empty)(payload), stopping
    ) as connection:
        _await_turn(listing, connection, stopping)
        _hold(registry, kernel, stopping)


def _empty(_: bytes) -> nri.Empty:
    return nri.Empty()


def _await_turn(listing: Listing, connection: Connection, stopping: threading.Event) -> None:
    begun, warned = time.monotonic(), False
    while not listing.done.wait(PAUSE):
        waited = time.monotonic() - begun
        if connection.ended.is_set() or stopping.is_set():
            raise ConnectionError(connection.why or "the driver stops")
        if waited > TURN:
            raise TimeoutError(f"the runtime has sent no list for {TURN:.0f} s")
        if waited > LONG and not warned:
            log.warning("the runtime keeps changes of masks waiting; a container that stops slowly may be why")
            warned = True


def _hold(registry: Registry, kernel: ReadMask, stopping: threading.Event) -> None:
    since, pause, fewest = time.monotonic(), FIRST_PAUSE, sys.maxsize
    # What has changed meanwhile is another connection's: this one would wait for it in vain.
    while containers := registry.awaited():
        if len(containers) < fewest:
            since, fewest = time.monotonic(), len(containers)
        masks = [(each, kernel(each.sight.cgroup)) for each in containers]
        registry.looked(masks)
        unseen = any(cpus is None for _, cpus in masks)
        if stopping.wait(pause) or time.monotonic() > since + (HOLD_UNSEEN if unseen else HOLD_SEEN):
            return
        pause = min(2 * pause, PAUSE)
