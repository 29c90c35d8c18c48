"""What the runtime asks and tells us. Every handler answers from memory, and at once.

A handler that is late is worse than one that refuses: the runtime drops the plugin and lets the container start as
it is. The one thing read here is the kernel's masks, and only for so long.
"""

import logging
from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message

from driver.nri.glance import Glance
from driver.nri.listing import Listing
from driver.nri.pins import InTheWayError, RefusedContainerError
from driver.nri.registry import Registry
from driver.nri.sight import Sight, cpus_of
from driver.nri.static_manager import StaticManager
from driver.nri.ttrpc import FAILED_PRECONDITION, UNIMPLEMENTED, CallError
from driver.protos import nri_pb2 as nri

log = logging.getLogger(__name__)

EVENTS = (1 << nri.REMOVE_CONTAINER) - 1
"""All that every version knows. One that is not known would make the runtime drop us."""

READING = 0.3
"""Seconds for the masks of containers that may be in the way. One that was not read counts as in the way."""

LIFECYCLE = {
    "RunPodSandbox": nri.RUN_POD_SANDBOX,
    "StopPodSandbox": nri.STOP_POD_SANDBOX,
    "RemovePodSandbox": nri.REMOVE_POD_SANDBOX,
    "PostCreateContainer": nri.POST_CREATE_CONTAINER,
    "StartContainer": nri.START_CONTAINER,
    "PostStartContainer": nri.POST_START_CONTAINER,
    "PostUpdateContainer": nri.POST_UPDATE_CONTAINER,
    "RemoveContainer": nri.REMOVE_CONTAINER,
}
"""Calls of newer versions that older ones make as ``StateChange`` with an event."""


class Plugin:
    """The handlers of one connection.

    ``wake`` is called when something may have to be put right, ``hurry`` when a container was refused for it.
    """

    def __init__(
        self,
        registry: Registry,
        glance: Glance,
        manager: StaticManager,
        wake: Callable[[], None],
        hurry: Callable[[], None],
    ) -> None:
        self._registry, self._glance, self._manager = registry, glance, manager
        self._wake, self._hurry = wake, hurry
        self.listing = Listing(registry, glance, afresh=True)
        self.told = nri.ConfigureRequest()
        self._calls: dict[str, Callable[[bytes], Message]] = {
            "Configure": self._configure,
            "Synchronize": self.listing.take,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
            "StopContainer": self._stop,
            "StateChange": self._state_change,
            "Shutdown": lambda _: nri.Empty(),
        }
        self._events: dict[int, Callable[[nri.PodSandbox, nri.Container], None]] = {
            nri.RUN_POD_SANDBOX: lambda pod, _: registry.run_pod(pod.id, pod.uid),
            nri.STOP_POD_SANDBOX: lambda pod, _: registry.stop_pod(pod.id),
            nri.REMOVE_POD_SANDBOX: lambda pod, _: registry.remove_pod(pod.id),
            nri.POST_CREATE_CONTAINER: lambda pod, each: registry.created(Sight.of(pod, each)),
            nri.START_CONTAINER: self._start,
            nri.POST_START_CONTAINER: lambda pod, each: registry.started(Sight.of(pod, each)),
            nri.POST_UPDATE_CONTAINER: lambda _, each: registry.updated(each.id),
            nri.REMOVE_CONTAINER: lambda _, each: registry.remove(each.id),
        }

    def __call__(self, method: str, payload: bytes) -> Message:
        """Answer a call. Raises ``CallError`` to refuse a container, or a method that is not known."""
        try:
            if (event := LIFECYCLE.get(method)) is not None:
                request = nri.LifecycleRequest.FromString(payload)
                return self._event(event, request.pod, request.container)
            if (call := self._calls.get(method)) is None:
                raise CallError(UNIMPLEMENTED, f"the driver has no method {method[:80]!r}")
            return call(payload)
        except RefusedContainerError as error:
            self._registry.later.put(partial(log.warning, "refused: %s", error))
            if isinstance(error, InTheWayError):
                self._hurry()
            raise CallError(FAILED_PRECONDITION, f"dra.cpu refuses {error}") from None
        finally:
            self._wake()

    def _configure(self, payload: bytes) -> nri.ConfigureResponse:
        self.told = told = nri.ConfigureRequest.FromString(payload)
        names = (told.runtime_name[:80], told.runtime_version[:80], told.NRI_version[:80] or "not told")
        self._registry.later.put(partial(log.info, "runtime %s %s, NRI %s", *names))
        return nri.ConfigureResponse(events=EVENTS)

    def _create(self, payload: bytes) -> nri.CreateContainerResponse:
        request = nri.CreateContainerRequest.FromString(payload)
        sight = Sight.of(request.pod, request.container)
        pin, updates = self._registry.create(sight, self._glance(self._registry.doubtful(sight), READING))
        if sight.cpus and sight.cpus != pin.cpus:
            self._registry.later.put(self._manager.suspect)
        response = nri.CreateContainerResponse(update=[each.message() for each in updates])
        pin.into(response.adjust.linux.resources)
        return response

    def _start(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        sight = Sight.of(pod, container)
        cgroups = {sight.id: sight.cgroup} | self._registry.in_the_way(sight)
        self._registry.start(sight, self._glance(cgroups, READING))

    def _update(self, payload: bytes) -> nri.UpdateContainerResponse:
        request = nri.UpdateContainerRequest.FromString(payload)
        sight, asked = Sight.of(request.pod, request.container), cpus_of(request.linux_resources)
        pin = self._registry.update(sight, asked)
        response = nri.UpdateContainerResponse()
        if pin is not None and pin.cpus:
            update = response.update.add(container_id=sight.id)
            pin.into(update.linux.resources)
        if asked:
            self._registry.later.put(partial(self._manager.asked, sight, asked, pin.cpus if pin else asked))
        return response

    def _stop(self, payload: bytes) -> nri.StopContainerResponse:
        request = nri.StopContainerRequest.FromString(payload)
        updates = self._registry.stop(request.container.id)
        return nri.StopContainerResponse(update=[each.message() for each in updates])

    def _state_change(self, payload: bytes) -> nri.Empty:
        change = nri.StateChangeEvent.FromString(payload)
        return self._event(change.event, change.pod, change.container)

    def _event(self, event: int, pod: nri.PodSandbox, container: nri.Container) -> nri.Empty:
        if (handler := self._events.get(event)) is not None:
            handler(pod, container)
        return nri.Empty()
