"""This machine as a node: real containerd, the driver in its own process, doubles of kubelet and API server."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml

from benchmarks.driver.processes import child
from driver.ledger.entry import Entry
from driver.ledger.files import read_entry
from driver.names import cdi_id
from driver.nri import link
from driver.ports import ClaimRef
from driver.solving import process
from models import format_cpuset, parse_cpuset
from tests.driver.claims.documents import claim as claim_document
from tests.driver.claims.documents import options, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.kubelet.kubelet import Kubelet
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.cri import READ_FIRST_MASK, Pod, Spec
from tests.driver.runtime.masks import MixedError, mask, read_status

ONLINE = parse_cpuset(Path("/sys/devices/system/cpu/online").read_text())
PATIENCE = 30.0


def until(what: str, true: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What ``true`` gives once it gives something."""
    end = time.monotonic() + patience
    while not (found := true()):
        assert time.monotonic() < end, f"not so after {patience:.0f} s: {what}"
        time.sleep(0.02)
    return found


class RefusedError(Exception):
    """The runtime would not do it."""


@dataclass(frozen=True)
class Running:
    """A container that runs: its pod, its cgroup, and the claim that it carries, if any."""

    id: str
    pod: Pod
    name: str
    cgroup: str
    ref: ClaimRef | None


class Node:
    """``open`` brings everything up; ``start_driver`` and ``end_driver`` are for the tests.

    ``steps``: what was done, with the masks that the kernel had then. ``told``: CDI devices that the kubelet hands
    to the runtime, by uid of the claim.
    """

    def __init__(self, folder: Path, containerd: Containerd, **settings: Any) -> None:
        self.folder, self.containerd, self.cri = folder, containerd, containerd.cri
        self.api, self.kubelet = ApiServer(node="node-1"), Kubelet(folder / "k")
        self.settings, self.environment = settings, dict[str, str]()
        self.containers: dict[str, Running] = {}
        self.told: dict[str, tuple[str, ...]] = {}
        self.steps: list[str] = []
        self._driver: subprocess.Popen[bytes] | None = None

    @contextmanager
    def open(self) -> Iterator["Node"]:
        """With API server and driver."""
        (self.folder / "k/plugins_registry").mkdir(parents=True)
        with self.api:
            try:
                self.start_driver()
                yield self
            finally:
                self._tidy()
                self.end_driver()
                self.kubelet.close()

    def _tidy(self) -> None:
        for sandbox in self.cri.pods():
            self.cri.remove_pod(sandbox)
        for file in self.containerd.cdi_dir.iterdir():
            file.unlink()

    # The driver

    def start_driver(self) -> None:
        """Start it, and wait until it serves the kubelet."""
        config = self.folder / "driver.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        program = [sys.executable, "-c", "from driver.cli import main; main()", "--config", str(config)]
        flags = ["--kubelet-root-dir", str(self.folder / "k"), "--bind-address", "127.0.0.1:0"]
        with (self.folder / "driver.log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            self._driver = subprocess.Popen([*program, *flags], stdout=log, stderr=log, env=environment)
        self.kubelet.close()
        until("the driver listens", self._is_listening, 60)
        self.kubelet.register()

    def _is_listening(self) -> bool:
        """gRPC would wait for seconds before it tried again, had it found the socket of one who was killed."""
        assert self._driver is not None
        assert self._driver.poll() is None, self.log()[-3000:]
        with socket.socket(socket.AF_UNIX) as sock:
            return any(sock.connect_ex(str(path)) == 0 for path in self.kubelet.sockets())

    def end_driver(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it in some way."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.send_signal(how)
            driver.wait(PATIENCE)

    def worker(self) -> int | None:
        """The process of the driver's solver, once there is one."""
        assert self._driver is not None
        return child(self._driver.pid, process.PROGRAM)

    def answering(self) -> int | None:
        """The driver's process that answers the runtime, if there is one."""
        assert self._driver is not None
        return child(self._driver.pid, link.PROGRAM)

    def log(self) -> str:
        """What the driver has said."""
        return (self.folder / "driver.log").read_text()

    def _config(self) -> dict[str, Any]:
        return {
            "hostnameOverride": "node-1",
            "kubeconfig": str(self.api.kubeconfig(self.folder / "kubeconfig")),
            "groupBy": "machine",
            "cdiDir": str(self.containerd.cdi_dir),
            "nriSocket": str(self.containerd.nri_socket),
            **self.settings,
        }

    # Claims

    @property
    def ledger(self) -> dict[str, Entry]:
        """The ledger on disk."""
        folder = self.folder / "k/plugins/dra.cpu/ledger"
        return {path.stem: read_entry(path) for path in folder.glob("*.json")}

    def claim(self, cpus: int = 1, *configs: dict[str, Any], **said: Any) -> ClaimRef:
        """A new claim that is allocated, and reserved for the pod of the same uid. ``said``: options."""
        uid = str(uuid.uuid4())
        configs = (*configs, options(**said)) if said else configs
        document = claim_document(result("r", "cpudevmachine", str(cpus)), configs=configs, pods=(uid,))
        document["metadata"] = {"uid": uid, "namespace": "default", "name": f"c-{uid}"}
        self.api.put_claim(document)
        return ClaimRef(uid, "default", f"c-{uid}")

    def prepare(self, ref: ClaimRef) -> frozenset[int]:
        """Prepare it through the driver's socket; the CPUs of its ledger."""
        (device,) = self.kubelet.prepare(ref)[ref.uid].require()
        metadata = [f"dra.cpu/metadata={ref.uid}_r"] if self.settings.get("deviceMetadata", True) else []
        assert device.cdi == (cdi_id(ref.uid), *metadata)
        self.told[ref.uid] = device.cdi
        return self.ledger[ref.uid].cpuset

    def unprepare(self, ref: ClaimRef) -> None:
        """Unprepare it."""
        assert self.kubelet.unprepare(ref) == {ref.uid: ""}

    # Containers

    def run(
        self,
        ref: ClaimRef | None = None,
        *,
        pod: Pod | None = None,
        name: str = "main",
        env: Mapping[str, str] | None = None,
        attempt: int = 0,
    ) -> Running:
        """A container, of a claim or of none, in a pod of its own unless one is given. Raises ``RefusedError``."""
        spec = Spec(name, attempt, self.told.get(ref.uid, [cdi_id(ref.uid)]) if ref else [], env or {})
        try:
            pod = pod or self.cri.run_pod(ref.uid if ref else str(uuid.uuid4()))
            container = self.cri.create(pod, spec)
            try:
                self.cri.start(container)
            except grpc.RpcError:
                self.cri.remove(container)
                raise
        except grpc.RpcError as error:
            raise RefusedError(error.details()) from None
        running = Running(container, pod, name, self.cri.cgroup_of(container), ref)
        self.containers[container] = running
        return running

    def remove(self, container: Running, *, pod: bool = True) -> None:
        """End the container, and its pod."""
        self.cri.stop(container.id)
        self.cri.remove(container.id)
        del self.containers[container.id]
        if pod:
            self.cri.remove_pod(container.pod.sandbox)

    def first_mask(self, container: Running) -> frozenset[int]:
        """What its first process could run on, when it began."""
        return read_status(self.cri.execute(container.id, *READ_FIRST_MASK))

    # The invariant

    def check(self, what: str, patience: float = PATIENCE) -> None:
        """The kernel's mask of every container equals the ledger: of claims at once, of all others soon."""
        for container in self.containers.values():
            if self._claimed(container):
                now, wanted = mask(container.cgroup), self._wanted(container)
                assert now == wanted, f"{what}: the claim's container runs on {now}, not {wanted}"
        until(f"{what}: masks as the ledger says, not {self.wrong()}", lambda: not self.wrong(), patience)
        shown = [
            f"{each.name}{'*' if each.ref else ''}={format_cpuset(mask(each.cgroup))}"
            for each in self.containers.values()
        ]
        self.steps.append(f"  {what}: {' '.join(shown) or '-'}")

    def wrong(self) -> dict[str, str]:
        """Containers whose masks are not as the ledger says."""
        return {each.name: why for each in list(self.containers.values()) if (why := self._why_wrong(each))}

    def _why_wrong(self, container: Running) -> str:
        try:
            now, wanted = mask(container.cgroup), self._wanted(container)
        except MixedError as error:
            return str(error)
        return "" if now == wanted else f"{format_cpuset(now)} instead of {format_cpuset(wanted)}"

    def _claimed(self, container: Running) -> bool:
        return container.ref is not None and container.ref.uid in self.ledger

    def _wanted(self, container: Running) -> frozenset[int]:
        ledger = self.ledger
        if container.ref is not None and container.ref.uid in ledger:
            return ledger[container.ref.uid].cpuset
        return ONLINE.difference(*(entry.cpuset for entry in ledger.values()))
