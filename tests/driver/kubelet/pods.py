"""Pods as a kubelet brings them up: what it prepares when, and when it tries again.

A real one (1.36, six waits measured) tries a Prepare that failed again after 68 to 84 s, unless the pod changes.
It does not prepare again what it holds prepared. Here that time passes when a test says so.
"""

import random
from dataclasses import dataclass

import grpc

from driver.ports import ClaimRef
from tests.driver.kubelet.kubelet import Kubelet

SOONEST, LATEST = 68.0, 84.0
"""Seconds from a failure to the next try."""


@dataclass
class Pod:
    """What the kubelet knows of a pod with one claim. ``error``: why it does not start; ``due``: its next try."""

    ref: ClaimRef
    tries: int = 0
    error: str = "has not been tried"
    due: float = 0.0

    @property
    def prepared(self) -> bool:
        return not self.error


class Pods:
    """The pods of a node, and a clock that stands still until it is turned."""

    def __init__(self, kubelet: Kubelet, seed: int = 0) -> None:
        self.kubelet, self.now = kubelet, 0.0
        self._random = random.Random(seed)
        self._pods: dict[str, Pod] = {}

    def come(self, ref: ClaimRef) -> Pod:
        """A pod that names the claim has been bound to the node."""
        pod = self._pods[ref.uid] = Pod(ref)
        self._try(pod)
        return pod

    def change(self, pod: Pod) -> None:
        """Somebody has changed the pod: an annotation is enough."""
        if not pod.prepared:
            self._try(pod)

    def go(self, pod: Pod) -> None:
        """The pod has ended."""
        del self._pods[pod.ref.uid]
        assert self.kubelet.unprepare(pod.ref) == {pod.ref.uid: ""}

    def turn(self, seconds: float) -> None:
        """Let time pass, and do what is due by then."""
        end = self.now + seconds
        while due := [each for each in self._pods.values() if not each.prepared and each.due <= end]:
            pod = min(due, key=lambda each: each.due)
            self.now = pod.due
            self._try(pod)
        self.now = end

    def _try(self, pod: Pod) -> None:
        pod.tries += 1
        try:
            pod.error = self.kubelet.prepare(pod.ref)[pod.ref.uid].error
        except grpc.RpcError as error:
            pod.error = str(error)
        pod.due = self.now + self._random.uniform(SOONEST, LATEST)
