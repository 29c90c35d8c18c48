"""Which devices work: a stream that says it when it changes, and every ten seconds."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from driver.conditions import Conditions
from driver.kubelet.handlers import service, stream
from driver.protos import health_pb2 as health

if TYPE_CHECKING:
    from driver.kubelet.handlers import Context, Handler

log = logging.getLogger(__name__)

PERIOD, TIMEOUT = 10.0, 30
"""Seconds between two messages at most, and those of silence after which the kubelet calls the health unknown."""

LONGEST_MESSAGE = 1024
"""Characters that the kubelet keeps."""

MOST_STREAMS = 4
"""The kubelet has one, or two while it starts again. With more the oldest ends; what gRPC keeps of one that nobody
reads goes with its connection (``serving.OPTIONS``)."""

VERSIONS = ("v1", "v1beta1", "v1alpha1")


class Named(Protocol):
    """A device that is published."""

    @property
    def name(self) -> str:
        """Its name in the pool."""


class _Stream:
    """A reader: the task that writes to it, in its event loop. Made there; used from any thread."""

    def __init__(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._changed, self._waits = asyncio.Event(), False

    async def wait(self, seconds: float) -> None:
        """Until it is woken, at most so long."""
        self._waits = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._waits = False
        self._changed.clear()

    def wake(self) -> None:
        """End the wait."""
        with suppress(RuntimeError):  # The loop is closed, and the stream with it.
            self._loop.call_soon_threadsafe(self._changed.set)

    def end(self) -> None:
        """Have it see that it is to end, or cancel it if its reader does not read. To be called in the loop."""
        if self._waits:
            self._changed.set()
        elif self._task is not None:
            self._task.cancel()


class Health:
    """Answers NodeWatchResources. All devices are healthy, or none is while any condition holds.

    ``devices`` is gone through for each message.
    """

    def __init__(self, devices: Iterable[Named], pool: str, conditions: Conditions) -> None:
        self._devices, self._pool, self._conditions = devices, pool, conditions
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []
        """Oldest first."""
        conditions.listen(self._wake)

    def handlers(self) -> "list[Handler]":
        """One per version."""
        watch = stream(self.watch, health.NodeWatchResourcesRequest, health.NodeWatchResourcesResponse)
        return [service(f"{version}.DRAResourceHealth", {"NodeWatchResources": watch}) for version in VERSIONS]

    async def watch(
        self, _request: health.NodeWatchResourcesRequest, _context: "Context"
    ) -> AsyncIterator[health.NodeWatchResourcesResponse]:
        """Messages until the kubelet hangs up, which cancels the task."""
        own = _Stream()
        self._add(own)
        try:
            while own in self._streams:
                yield self.now()
                await own.wait(PERIOD)
        finally:
            self._drop(own)

    def now(self) -> health.NodeWatchResourcesResponse:
        """How all devices are."""
        message = str(self._conditions)[:LONGEST_MESSAGE]
        state = health.UNHEALTHY if message else health.HEALTHY
        devices = [
            health.DeviceHealth(
                device=health.DeviceIdentifier(pool_name=self._pool, device_name=device.name),
                health=state,
                last_updated_time=int(time.time()),
                health_check_timeout_seconds=TIMEOUT,
                message=message,
            )
            for device in self._devices
        ]
        return health.NodeWatchResourcesResponse(devices=devices)

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            streams, self._streams = self._streams, []
        for each in streams:
            each.wake()

    def _add(self, own: _Stream) -> None:
        with self._lock:
            self._streams.append(own)
            surplus, self._streams = self._streams[:-MOST_STREAMS], self._streams[-MOST_STREAMS:]
        for oldest in surplus:
            log.warning("more than %d streams of device health; the oldest ends", MOST_STREAMS)
            oldest.end()

    def _drop(self, own: _Stream) -> None:
        with self._lock, suppress(ValueError):
            self._streams.remove(own)

    def _wake(self) -> None:
        with self._lock:
            streams = tuple(self._streams)
        for each in streams:
            each.wake()
