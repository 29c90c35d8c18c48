"""Which devices work: a stream that says it when it changes, and every ten seconds."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import grpc

from driver.conditions import Conditions
from driver.kubelet.handlers import service, stream
from driver.protos import health_pb2 as health

if TYPE_CHECKING:
    from driver.kubelet.handlers import Handler

log = logging.getLogger(__name__)

PERIOD, TIMEOUT = 10.0, 30
"""Seconds between two messages at most, and those of silence after which the kubelet calls the health unknown."""

LONGEST_MESSAGE = 1024
"""Characters that the kubelet keeps."""

MOST_STREAMS = 4
"""The kubelet has one, or two while it starts again. Each costs a thread."""

VERSIONS = ("v1", "v1beta1", "v1alpha1")


class Named(Protocol):
    """A device that is published."""

    @property
    def name(self) -> str:
        """Its name in the pool."""


class Health:
    """Answers NodeWatchResources. All devices are healthy, or none is while any condition holds.

    ``devices`` is gone through for each message. With too many streams the oldest is cut off: it may be one whose
    reader has stopped reading, so that its thread would wait for it for ever.
    """

    def __init__(self, devices: Iterable[Named], pool: str, conditions: Conditions) -> None:
        self._devices, self._pool, self._conditions = devices, pool, conditions
        self._lock = threading.Lock()
        self._streams: dict[threading.Event, grpc.ServicerContext] = {}
        """What wakes each stream, oldest first. A stream that is no longer in here ends."""
        conditions.listen(self._wake)

    def handlers(self) -> "list[Handler]":
        """One per version."""
        watch = stream(self.watch, health.NodeWatchResourcesRequest, health.NodeWatchResourcesResponse)
        return [service(f"{version}.DRAResourceHealth", {"NodeWatchResources": watch}) for version in VERSIONS]

    def watch(
        self, _request: health.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[health.NodeWatchResourcesResponse]:
        """Messages until the kubelet hangs up."""
        changed = threading.Event()
        context.add_callback(changed.set)
        self._add(changed, context)
        try:
            while context.is_active() and changed in self._streams:
                changed.clear()
                yield self.now()
                changed.wait(PERIOD)
        finally:
            self._drop(changed)

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
            streams, self._streams = self._streams, {}
        for changed in streams:
            changed.set()

    def _add(self, changed: threading.Event, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._streams[changed] = context
            surplus = list(self._streams.items())[:-MOST_STREAMS]
        for oldest, reader in surplus:
            log.warning("more than %d streams of device health; the oldest ends", MOST_STREAMS)
            self._drop(oldest)
            reader.cancel()

    def _drop(self, changed: threading.Event) -> None:
        with self._lock:
            self._streams.pop(changed, None)
        changed.set()

    def _wake(self) -> None:
        with self._lock:
            streams = tuple(self._streams)
        for changed in streams:
            changed.set()
