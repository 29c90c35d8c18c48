"""ResourceClaims as the API server has them, and what our driver makes of them on a machine."""

from collections import Counter
from typing import Any

from driver.claims.view import ClaimView
from driver.claims.wish import Wish, wish
from driver.config import Config
from driver.devices.devices import DeviceMap, devices_of
from driver.node import NodeCPUs
from driver.ports import ClaimRef
from models import Topology
from solver.engine import solve

REF = ClaimRef("6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11", "default", "cpus")


def result(request: str, device: str, cpus: Any = None, **more: Any) -> dict[str, Any]:
    found = {"request": request, "driver": "dra.cpu", "pool": "node-1", "device": device, **more}
    return found if cpus is None else {**found, "consumedCapacity": {"dra.cpu/cpu": cpus}}


def config(parameters: Any, source: str = "FromClaim", requests: list[str] | None = None) -> dict[str, Any]:
    return {"source": source, "requests": requests, "opaque": {"driver": "dra.cpu", "parameters": parameters}}


def options(source: str = "FromClaim", requests: list[str] | None = None, **said: Any) -> dict[str, Any]:
    return config({"apiVersion": "dra.cpu/v1", "kind": "CpuClaimConfig", **said}, source, requests)


def cpuset(text: Any, requests: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return config({"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": text}, **more}, requests=requests)


def claim(*results: dict[str, Any], configs: Any = (), pods: tuple[str, ...] = ("pod-1",)) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": REF.name, "namespace": REF.namespace, "uid": REF.uid},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": list(configs)}},
            "reservedFor": [{"resource": "pods", "name": f"name-of-{pod}", "uid": pod} for pod in pods],
        },
    }


class Node:
    """A machine under a configuration."""

    def __init__(self, topology: Topology, **settings: Any) -> None:
        self.topology = topology
        self.config = Config.model_validate(settings)
        self.node = NodeCPUs.of(
            topology.model_copy(update={"reserved": self.config.reserved_cpus}),
            min_shared=self.config.min_shared_cpus,
        )
        self.devices: DeviceMap = devices_of(self.config, topology, self.node)

    def wish(self, document: dict[str, Any]) -> Wish:
        view = ClaimView.read(document, REF, counted=self.config.cpu_device_mode == "grouped")
        return wish(view, self.config, self.devices, self.node)

    def shares(self, document: dict[str, Any]) -> dict[str, list[int]]:
        """Placed for real: per request of the solver, how many CPUs it takes of each NUMA node that it uses."""
        wanted = self.wish(document)
        free = self.node.allocatable - wanted.set_aside
        numa = {cpu.cpu: cpu.numa or 0 for cpu in self.topology.cpus}
        found = {}
        for each in solve(self.topology, wanted.requests, free=free).require():
            taken = Counter(numa[cpu] for cpu in each.cpuset)
            found[each.request] = [taken[node] for node in sorted(taken)]
        return found
