"""The runtime's list of pods and containers, which it sends when a plugin connects."""

import threading
from dataclasses import replace

from driver.nri.glance import Glance
from driver.nri.registry import Registry
from driver.nri.sight import Sight
from driver.nri.ttrpc import FAILED_PRECONDITION, CallError
from driver.protos import nri_pb2 as nri

MOST = 100_000
"""Containers and pods of one list. What is kept of each is small."""

READING = 0.5
"""Seconds for the masks of a list. The runtime waits for two, and then drops the plugin."""


class Listing:
    """Takes a list in one or more parts, and answers the last with what the runtime is to change.

    ``done`` is set when that is so.
    """

    def __init__(self, registry: Registry, glance: Glance, *, afresh: bool) -> None:
        self._registry, self._glance, self._afresh = registry, glance, afresh
        self._sights: list[Sight] = []
        self._pods: dict[str, nri.PodSandbox] = {}
        self._room = MOST
        self.done = threading.Event()

    def take(self, payload: bytes) -> nri.SynchronizeResponse:
        """One Synchronize."""
        request = nri.SynchronizeRequest.FromString(payload)
        self._room -= len(request.containers) + len(request.pods)
        if self._room < 0:
            self._sights, self._pods = [], {}
            raise CallError(FAILED_PRECONDITION, f"more than {MOST} pods and containers in the list")
        self._pods.update((pod.id, pod) for pod in request.pods)
        for container in request.containers:
            self._sights.append(Sight.of(nri.PodSandbox(id=container.pod_sandbox_id), container))
        if request.more:
            return nri.SynchronizeResponse(more=True)
        return self._finish()

    def _finish(self) -> nri.SynchronizeResponse:
        sights = [self._with_pod(sight) for sight in self._sights]
        masks = self._glance(self._registry.to_read(sights, afresh=self._afresh), READING)
        pods = {sandbox: pod.uid for sandbox, pod in self._pods.items()}
        updates = self._registry.synchronize(sights, pods, masks, afresh=self._afresh)
        self._sights, self._pods, self._room = [], {}, MOST
        self.done.set()
        return nri.SynchronizeResponse(update=[each.message() for each in updates])

    def _with_pod(self, sight: Sight) -> Sight:
        pod = self._pods.get(sight.sandbox)
        return sight if pod is None else replace(sight, pod_uid=pod.uid, pod=f"{pod.namespace}/{pod.name}")
