"""A hand on a node, which brings it to where a step can be taken, and tries again and again as a kubelet does."""

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from driver.ports import ClaimRef
from tests.driver.claims.documents import cpuset
from tests.driver.kubelet.kubelet import Refused
from tests.driver.runtime.cri import Pod
from tests.driver.runtime.node import ONLINE, Node, RefusedError, Running, until

MOST = 5
"""Containers without a claim."""


class Hand:
    """``claims``: those that are prepared, as far as the hand has seen to it."""

    def __init__(self, node: Node, chance: random.Random) -> None:
        self.node, self.random = node, chance
        self.claims: list[ClaimRef] = []
        self._made = 0

    def new_name(self) -> str:
        self._made += 1
        return f"s{self._made}"

    def free(self) -> frozenset[int]:
        return ONLINE.difference(*(entry.cpuset for entry in self.node.ledger.values()))

    def is_room(self) -> bool:
        """One CPU always stays shared."""
        return len(self.free()) > 1

    def make_room(self, containers: int = 0, cpus: int = 1) -> None:
        """End what must end so that there can be more."""
        while cpus and not self.is_room():
            self.released(self.random.choice(self.claims))
        while len(self.shared()) + containers > MOST:
            self.node.remove(self.random.choice(self.shared()))

    def new_claim(self) -> ClaimRef:
        """Of a CPU that the solver chooses, or that the claim names."""
        if self.random.random() < 0.5:
            return self.node.claim()
        return self.node.claim(1, cpuset(str(self.random.choice(sorted(self.free())))))

    def some_claim(self) -> ClaimRef:
        if not self.claims:
            self.prepared(self.new_claim())
        return self.random.choice(self.claims)

    def prepared(self, ref: ClaimRef) -> None:
        until(f"prepared: {ref}", lambda: not self._try_to_prepare(ref), 60)
        self.claims.append(ref)

    def _try_to_prepare(self, ref: ClaimRef) -> str:
        try:
            self.node.prepare(ref)
        except Refused as error:
            return str(error)
        return ""

    def refusal(self, ref: ClaimRef) -> str:
        """Why the claim is not prepared. Where it is, it does not stay so."""
        if not (why := self._try_to_prepare(ref)):
            self.node.unprepare(ref)
        return why

    def released(self, ref: ClaimRef) -> None:
        self.end_carriers(ref)
        self.node.unprepare(ref)
        self.claims.remove(ref)

    def shared(self) -> list[Running]:
        return [each for each in self.node.containers.values() if each.ref is None]

    def carriers(self, ref: ClaimRef) -> list[Running]:
        return [each for each in self.node.containers.values() if each.ref == ref]

    def end_carriers(self, ref: ClaimRef) -> None:
        for container in self.carriers(ref):
            self.node.remove(container)

    def some_container(self) -> Running:
        if not self.node.containers:
            self.started(name=self.new_name())
        return self.random.choice(list(self.node.containers.values()))

    def pod_of(self, ref: ClaimRef) -> Pod:
        """The claim's pod."""
        carriers = self.carriers(ref)
        return carriers[0].pod if carriers else self.carrier(ref).pod

    def carrier(self, ref: ClaimRef) -> Running:
        """The claim's container; its first process has had the claim's CPUs and no others."""
        for container in self.carriers(ref):
            return container
        container = self.started(ref)
        assert self.node.first_mask(container) == self.node.ledger[ref.uid].cpuset
        return container

    def again(self, container: Running) -> Running:
        """The kubelet restarts a container in its pod."""
        return self.started(
            container.ref, container.pod, name=container.name, attempt=self.random.randint(1, 1 << 20)
        )

    def started(self, ref: ClaimRef | None = None, pod: Pod | None = None, **how: object) -> Running:
        """A container, which is tried until the runtime and the driver let it start."""
        pod = pod or self.node.cri.run_pod(ref.uid if ref else str(uuid4()))
        found: Running = until("a container may start", partial(self._try_to_start, ref, pod, how), 60)
        return found

    def _try_to_start(self, ref: ClaimRef | None, pod: Pod, how: dict[str, object]) -> Running | None:
        try:
            return self.node.run(ref, pod=pod, **how)  # type: ignore[arg-type]
        except RefusedError:
            return None

    @contextmanager
    def without_driver(self, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        self.node.end_driver(how)
        yield
        self.node.start_driver()
        until("what was done meanwhile is put right", lambda: not self.node.wrong())
