"""A kubelet's CPU manager: its checkpoint, and the pod-resources API over a real gRPC socket."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from driver.kubelet.handlers import service, unary
from driver.protos import podresources_pb2 as podresources
from models import format_cpuset, parse_cpuset


class CPUManager:
    """The CPU manager of the kubelet in that folder. It writes its checkpoint at the start, and when it gives.

    ``given``: CPUs by pod uid and container, as the checkpoint has them. The API names a pod by its namespace and
    name, which the runtime's double makes of the uid.
    """

    def __init__(self, root: Path, policy: str = "none") -> None:
        self.root, self.policy = root, policy
        self.default = ""
        self.given: dict[str, dict[str, str]] = {}
        self.shared: dict[str, str] = {}
        self.calls, self._hangs = 0, threading.Event()
        self._hangs.set()
        self._server: grpc.Server | None = None
        root.mkdir(parents=True, exist_ok=True)
        self.save()

    @property
    def checkpoint(self) -> Path:
        return self.root / "cpu_manager_state"

    @property
    def socket(self) -> Path:
        return self.root / "pod-resources" / "kubelet.sock"

    def start(self, policy: str, default: str = "") -> "CPUManager":
        """The kubelet has been started anew with this policy, and knows of no containers."""
        self.policy, self.default, self.given, self.shared = policy, default, {}, {}
        self.save()
        return self

    def give(self, pod: str, container: str, cpus: str) -> None:
        """A container gets CPUs for itself, which leave the shared pool."""
        self.given.setdefault(pod, {})[container] = cpus
        self._leave_pool(cpus)

    def share(self, pod: str, cpus: str) -> None:
        """A pod gets CPUs, which those of its containers share that have none of their own."""
        self.shared[pod] = cpus
        self._leave_pool(cpus)

    def _leave_pool(self, cpus: str) -> None:
        self.default = format_cpuset(parse_cpuset(self.default) - parse_cpuset(cpus))
        self.save()

    def take_back(self, pod: str) -> None:
        """The pod has ended."""
        for cpus in [*self.given.pop(pod, {}).values(), self.shared.pop(pod, "")]:
            self.default = format_cpuset(parse_cpuset(self.default) | parse_cpuset(cpus))
        self.save()

    def save(self) -> None:
        """A new file takes the old one's place, as the kubelet does it."""
        state: dict[str, object] = {"policyName": self.policy, "defaultCpuSet": self.default}
        if self.given:
            state["entries"] = self.given
        if self.shared:
            state["podEntries"] = {pod: {"cpuSet": cpus} for pod, cpus in self.shared.items()}
        new = self.checkpoint.with_suffix(".new")
        new.write_text(json.dumps(state | {"checksum": 1}))
        new.replace(self.checkpoint)

    def serve(self) -> "CPUManager":
        """Answer at the socket."""
        self.socket.parent.mkdir(exist_ok=True)
        methods = {"List": unary(self._list, podresources.ListPodResourcesRequest, self._answer)}
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=[service("v1.PodResourcesLister", methods)])
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def hang(self) -> None:
        """Answer no more, until closed."""
        self._hangs.clear()

    def close(self) -> None:
        """The kubelet is away."""
        self._hangs.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        shutil.rmtree(self.socket.parent, ignore_errors=True)

    _answer = podresources.ListPodResourcesResponse

    def _list(
        self, _request: podresources.ListPodResourcesRequest, _context: grpc.ServicerContext
    ) -> podresources.ListPodResourcesResponse:
        self.calls += 1
        self._hangs.wait()
        return self._answer(
            pod_resources=[
                podresources.PodResources(
                    name=f"pod-{pod}",
                    namespace="default",
                    cpu_ids=parse_cpuset(self.shared.get(pod, "")),
                    containers=[
                        podresources.ContainerResources(name=name, cpu_ids=parse_cpuset(cpus))
                        for name, cpus in [*self.given.get(pod, {}).items(), ("sidecar", "")]
                    ],
                )
                for pod in self.given.keys() | self.shared.keys()
            ]
        )
