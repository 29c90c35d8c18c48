"""A node whose driver is a process of its own; kubelet, runtime and API server are doubles in this one."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from benchmarks.driver.processes import child, children, peak_mb, resident_mb
from benchmarks.driver.stages import Stages, read_stages
from driver.ledger.files import read_entry
from driver.names import variable
from driver.nri import link
from driver.options import KEYS
from driver.ports import ClaimRef
from driver.solving import process as worker
from models import Request, Topology, format_cpuset
from tests.driver.claims.documents import claim, options, result
from tests.driver.cluster.api_server import ApiServer
from tests.driver.kubelet.kubelet import Kubelet
from tests.driver.nri.fake_runtime import FakeRuntime
from tests.driver.sysfs import write_sysfs
from tests.driver.world import settings_in

NEIGHBOURS = 30
"""Containers without a claim: each claim that comes or goes changes their masks."""

PATIENCE = 60.0

SOLVER_READY_MB = 80
"""A solver that is as big has OR-Tools loaded."""


class ContainerRuntime(Protocol):
    """The runtime at the driver's socket: in this process (``FakeRuntime``) or in another (``Containers``)."""

    def create(self, pod_uid: str, name: str, env: Sequence[str] = (), /) -> object:
        """A container that runs."""

    def remove_pod(self, pod_uid: str, /) -> None:
        """End its containers, and forget it."""

    def stop_serving(self) -> None:
        """End it."""


class Node:
    """Claims come as a kubelet makes them come: prepared, then carried by a container; and go the same way back.

    ``prepared``, ``unprepared``: seconds of each call. ``engines``: what chose the CPUs of each claim.
    ``neighbours``: containers that are created before anything is measured. ``environment``: of the driver.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        time_limit: float,
        runtime: ContainerRuntime | None = None,
        neighbours: int = NEIGHBOURS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.time_limit, self.neighbours = folder, time_limit, neighbours
        self.root = write_sysfs(folder / "host", topology)
        self.api, self.kubelet = ApiServer(node="node-1"), Kubelet(folder / "k")
        self.log, self.environment = folder / "driver.log", environment or {}
        cgroups = folder / "cgroup"
        self.runtime = runtime or FakeRuntime(folder / "nri.sock", cpus=topology.online, cgroups=cgroups)
        self.prepared: list[float] = []
        self.unprepared: list[float] = []
        self.engines: list[str | None] = []

    @contextmanager
    def running(self) -> Iterator["Node"]:
        """With its driver, which serves, and whose solver is ready if it has one."""
        (self.folder / "k/plugins_registry").mkdir(parents=True)
        with self.api, self.log.open("ab") as log:
            command = [sys.executable, "-m", "benchmarks.driver.alone", str(self._config()), str(self.root)]
            environment = {**os.environ, **self.environment}
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            try:
                self._wait()
                yield self
            finally:
                self.kubelet.close()
                self._driver.terminate()
                self._driver.wait(PATIENCE)
                self.runtime.stop_serving()

    def come(self, asked: Sequence[Request]) -> ClaimRef:
        """Prepare a claim, and run a container that carries it."""
        ref = self.claim(asked)
        began = time.perf_counter()
        self.kubelet.prepare(ref)[ref.uid].require()
        self.prepared.append(time.perf_counter() - began)
        entry = read_entry(self.folder / f"k/plugins/dra.cpu/ledger/{ref.uid}.json")
        self.engines.append(entry.engine)
        self.runtime.create(ref.uid, "main", (f"{variable(ref.uid)}={format_cpuset(entry.cpuset)}",))
        return ref

    def go(self, ref: ClaimRef) -> None:
        """End its container, and unprepare it."""
        self.runtime.remove_pod(ref.uid)
        began = time.perf_counter()
        error = self.kubelet.unprepare(ref)[ref.uid]
        self.unprepared.append(time.perf_counter() - began)
        assert not error, error
        self.api.delete_claim(ref.namespace, ref.name)

    def forget_times(self) -> None:
        """Of the calls so far."""
        for kept in (self.prepared, self.unprepared, self.engines):
            kept.clear()

    def memory(self) -> tuple[int, int, int]:
        """MB resident of the driver, of its solver, 0 without one, and of the process that answers the runtime."""
        return resident_mb(self._driver.pid), self._child_mb(worker.PROGRAM), self._child_mb(link.PROGRAM)

    def peak_mb(self) -> int:
        """MB that the driver and its processes had resident at most, each at its own time, added up."""
        return sum(map(peak_mb, (self._driver.pid, *children(self._driver.pid))))

    def stages(self) -> Stages:
        """What the driver has spent its Prepares on so far."""
        return read_stages(self.log)

    def _child_mb(self, program: str) -> int:
        number = child(self._driver.pid, program)
        return 0 if number is None else resident_mb(number)

    def _wait(self) -> None:
        self.kubelet.register(PATIENCE)
        for number in range(self.neighbours):
            self.runtime.create(f"neighbour-{number}", "main")
        end = time.monotonic() + PATIENCE
        while self.time_limit and self._child_mb(worker.PROGRAM) < SOLVER_READY_MB:
            assert time.monotonic() < end, self.log.read_text()[-2000:]
            time.sleep(0.1)

    def _config(self) -> Path:
        path = self.folder / "driver.yaml"
        own = {"cgroupRoot": str(self.folder / "cgroup"), "solverTimeLimit": self.time_limit}
        path.write_text(yaml.safe_dump({**settings_in(self.folder, self.api), **own}))
        return path

    def claim(self, asked: Sequence[Request]) -> ClaimRef:
        """A new claim that is allocated, and reserved for a pod of the same uid."""
        uid = str(uuid.uuid4())
        document = claim(
            *(result(each.name, "cpudevmachine", str(each.cpus)) for each in asked),
            configs=[options(requests=[each.name], **_said(each)) for each in asked],
            pods=(uid,),
        )
        document["metadata"] = {"uid": uid, "namespace": "default", "name": f"c-{uid}"}
        self.api.put_claim(document)
        return ClaimRef(uid, "default", f"c-{uid}")


def _said(request: Request) -> dict[str, Any]:
    """The request's options as users write them."""
    named = {**KEYS, "policy": KEYS["allocation_policy"]}
    said = request.model_dump(mode="json", include=request.model_fields_set - {"name", "cpus"})
    if isinstance(said.get("strict"), list):
        said["strict"] = [named[name] for name in said["strict"]]
    return {named[name]: value for name, value in said.items()}
