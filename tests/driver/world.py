"""A node for the whole driver: its sockets and folders, with doubles of kubelet, runtime and API server."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driver.config import Config
from driver.ledger.entry import Entry
from driver.names import variable
from driver.nri.session import INDEX
from driver.ports import ClaimRef
from driver.serve import Driver
from models import Topology, format_cpuset
from tests.driver.claims.documents import claim as claim_document
from tests.driver.claims.documents import cpuset, options, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.death import Death
from tests.driver.kubelet.kubelet import Kubelet
from tests.driver.nri.fake_runtime import FakeContainer, FakeRuntime
from tests.driver.sysfs import write_sysfs


def settings_in(folder: Path, api: ApiServer) -> dict[str, str]:
    """A configuration whose files and sockets are all in the folder."""
    return {
        "hostnameOverride": "node-1",
        "kubeconfig": str(api.kubeconfig(folder / "kubeconfig")),
        "bindAddress": "127.0.0.1:0",
        "kubeletRootDir": str(folder / "k"),
        "cdiDir": str(folder / "cdi"),
        "nriSocket": str(folder / "nri.sock"),
        "groupBy": "machine",
    }


class World:
    """One node. ``driver`` is the one that runs; ``come_up`` starts another after it has gone.

    ``apart``: the container runtime is answered by a process of its own, as on a real node. ``longest``: seconds
    for which a claim waits that cannot be served at once.
    """

    def __init__(
        self, folder: Path, topology: Topology, *, apart: bool = True, longest: float = 0.0, **settings: Any
    ) -> None:
        self.folder, self.topology = folder, topology
        self.root = write_sysfs(folder / "host", topology)
        self.api = ApiServer(node="node-1")
        self.apart, cgroups = apart, folder / "cgroup"
        self.runtime = FakeRuntime(folder / "nri.sock", cpus=topology.online, cgroups=cgroups if apart else None)
        self.kubelet = Kubelet(folder / "k")
        self.settings = {"cgroupRoot": str(cgroups), **settings}
        self.longest = longest
        self.driver: Driver | None = None
        self.death: Death | None = None
        self._dead: list[Death] = []

    @contextmanager
    def running(self) -> Iterator["World"]:
        """With all of it running."""
        (self.folder / "k/plugins_registry").mkdir(parents=True, exist_ok=True)
        with self.api:
            try:
                self.come_up()
                yield self
            finally:
                self.go_down()
                for death in self._dead:
                    death.bury()
                self.kubelet.close()
                self.runtime.stop_serving()

    def config(self) -> Config:
        return Config.model_validate({**settings_in(self.folder, self.api), **self.settings})

    def make_driver(self) -> Driver:
        return Driver(self.config(), self.root, None if self.apart else self.runtime.kernel)

    def come_up(self) -> Driver:
        self.driver = self.make_driver()
        self.driver.longest_wait = self.longest
        assert self.driver.start()
        self.death = Death(self.driver, self.folder / "grave")
        self.wait_for_plugin()
        self.kubelet.close()  # A channel that has found nobody would say so for a while yet.
        self.kubelet.register()
        return self.driver

    def wait_for_plugin(self) -> None:
        """The runtime asks the driver; its second connection, which only brings changes, does not count."""
        end = time.monotonic() + 20
        while not any(each.index == INDEX and not each.end.closed.is_set() for each in self.runtime.plugins):
            assert time.monotonic() < end, "no plugin came"
            time.sleep(0.01)

    def go_down(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.stop()

    def die(self) -> None:
        """The driver is killed: nothing is undone, put in order or waited for."""
        assert self.death is not None
        self.death.come()
        self._dead.append(self.death)
        self.driver = self.death = None

    def claim(
        self,
        cpus: int,
        pod: str | None = None,
        device: str = "cpudevmachine",
        given: str | None = None,
        **said: Any,
    ) -> ClaimRef:
        """A new claim that is allocated and reserved for a pod. ``given``: its CPUs, as v1alpha1 has them."""
        uid = str(uuid.uuid4())
        document = claim_document(
            result("r", device, str(cpus), pool="node-1"),
            configs=[cpuset(given)] if given else [options(**said)] if said else [],
            pods=(pod or f"pod-{uid}",),
        )
        document["metadata"] = {"uid": uid, "namespace": "default", "name": f"c-{uid}"}
        self.api.put_claim(document)
        return ClaimRef(uid, "default", f"c-{uid}")

    def prepare(self, ref: ClaimRef) -> frozenset[int]:
        """What the ledger then says; raises the kubelet's ``Refused``."""
        self.kubelet.prepare(ref)[ref.uid].require()
        return self.held(ref)

    def reserve(self, ref: ClaimRef, *pods: str) -> None:
        """The API server says that the claim is for these pods now."""
        document = self.api.get("resourceclaims", ref.namespace, ref.name) or {}
        document["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
        self.api.put_claim(document)

    def entry(self, ref: ClaimRef) -> Entry:
        assert self.driver is not None
        return self.driver.ledger.snapshot.entries[ref.uid]

    def held(self, ref: ClaimRef) -> frozenset[int]:
        return self.entry(ref).cpuset

    def run(self, ref: ClaimRef, **how: Any) -> FakeContainer:
        """A container that carries the claim, in the claim's pod. Raises ``NotCreated``."""
        return self.runtime.create(f"pod-{ref.uid}", "main", self.env(ref), **how)

    def env(self, ref: ClaimRef) -> tuple[str, ...]:
        """What CDI gives a container of the claim."""
        return (f"{variable(ref.uid)}={format_cpuset(self.held(ref))}",)
