"""The kubelet's calls to a container runtime: pods and containers, over the runtime's own socket."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.driver.runtime import image
from tests.driver.runtime.messages import load

messages = load()

SERVICE = "runtime.v1.RuntimeService"

DEADLINE = 60.0

RUNNING = messages.CONTAINER_RUNNING

FIRST_MASK = "/first-mask"
"""Where a container's first process writes, before anything else, which CPUs it may run on."""

READ_FIRST_MASK = ("sh", "-c", f"until [ -s {FIRST_MASK} ]; do sleep 0.05; done; cat {FIRST_MASK}")

COMMAND = ("sh", "-c", f"grep Cpus_allowed_list /proc/self/status >{FIRST_MASK}; sleep 1000000 & sleep 1000000")
"""Two processes that sleep."""


@dataclass(frozen=True)
class Pod:
    """A pod that runs. ``sandbox``: the runtime's name for it."""

    sandbox: str
    uid: str
    config: Any = field(repr=False, compare=False)


@dataclass(frozen=True)
class Spec:
    """A container to be made. ``cdi``: what the driver told the kubelet; ``env``: the pod's own variables.

    ``cpuset``: what a kubelet with a static CPU manager would set.
    """

    name: str = "main"
    attempt: int = 0
    cdi: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = COMMAND
    cpuset: str = ""


class CRI:
    """The runtime at a socket. All calls raise ``grpc.RpcError`` with what the runtime says.

    ``cgroup``: the folder, below each controller's, that all pods are put in.
    """

    def __init__(self, socket: Path, cgroup: str) -> None:
        self._socket, self.cgroup = socket, cgroup
        self._connect()

    def _connect(self) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix:{self._socket}", options=options)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def call(self, method: str, deadline: float = DEADLINE, **fields: Any) -> Any:
        """Any method by its name, with the fields of its request."""
        request = getattr(messages, f"{method}Request")(**fields)
        reply = getattr(messages, f"{method}Response")
        serialize = type(request).SerializeToString
        call = self._channel.unary_unary(f"/{SERVICE}/{method}", serialize, reply.FromString)
        return call(request, timeout=deadline)

    def version(self) -> str:
        """The runtime's name and version."""
        reply = self.call("Version")
        return f"{reply.runtime_name} {reply.runtime_version}"

    def is_ready(self) -> bool:
        """Whether it answers and would run pods on the node's network. If not we hang up, for gRPC would wait
        for seconds before it tries to connect again."""
        try:
            conditions = self.call("Status", deadline=5.0).status.conditions
        except grpc.RpcError:
            self.close()
            self._connect()
            return False
        return any(each.type == "RuntimeReady" and each.status for each in conditions)

    def run_pod(self, uid: str, logs: Path | None = None) -> Pod:
        """A pod on the node's network, in a cgroup of its own as the kubelet makes one, with a folder for logs."""
        config = messages.PodSandboxConfig(
            metadata=messages.PodSandboxMetadata(name=f"pod-{uid}", uid=uid, namespace="default"),
            log_directory=str(logs or ""),
            linux=messages.LinuxPodSandboxConfig(
                cgroup_parent=f"/{self.cgroup}/pod{uid}",
                security_context=messages.LinuxSandboxSecurityContext(namespace_options=_node_network()),
            ),
        )
        reply = self.call("RunPodSandbox", config=config)
        return Pod(reply.pod_sandbox_id, uid, config)

    def create(self, pod: Pod, spec: Spec) -> str:
        """A container in the pod, not started yet; its id."""
        config = messages.ContainerConfig(
            metadata=messages.ContainerMetadata(name=spec.name, attempt=spec.attempt),
            image=messages.ImageSpec(image=image.NAME),
            command=spec.command,
            envs=[messages.KeyValue(key=key, value=value.encode()) for key, value in spec.env.items()],
            linux=messages.LinuxContainerConfig(
                resources=messages.LinuxContainerResources(cpu_shares=100, cpuset_cpus=spec.cpuset),
                security_context=messages.LinuxContainerSecurityContext(namespace_options=_node_network()),
            ),
            CDI_devices=[messages.CDIDevice(name=name) for name in spec.cdi],
        )
        return self._create(pod, config)

    def add(self, pod: Pod, config: Any) -> str:
        """A container that runs in the pod, of any config; its id."""
        container = self._create(pod, config)
        self.start(container)
        return container

    def _create(self, pod: Pod, config: Any) -> str:
        fields = {"pod_sandbox_id": pod.sandbox, "config": config, "sandbox_config": pod.config}
        return str(self.call("CreateContainer", **fields).container_id)

    def start(self, container: str) -> None:
        """Run its first process."""
        self.call("StartContainer", container_id=container)

    def stop(self, container: str, grace: int = 0) -> None:
        """End it, after so many seconds by force."""
        self.call("StopContainer", container_id=container, timeout=grace)

    def remove(self, container: str) -> None:
        """Forget it, running or not."""
        self.call("RemoveContainer", container_id=container)

    def remove_pod(self, sandbox: str) -> None:
        """End a pod and forget it, its containers first, as a kubelet does: containerd 2.1 would take a lock of
        NRI's for the pod and once more for each of them, which never ends if a plugin connects in between."""
        self.call("StopPodSandbox", pod_sandbox_id=sandbox)
        for each in self.containers():
            if each.pod_sandbox_id == sandbox:
                self.remove(each.id)
        self.call("RemovePodSandbox", pod_sandbox_id=sandbox)

    def execute(self, container: str, *command: str) -> str:
        """What a command prints that is run in the container, as an exec probe is."""
        reply = self.call("ExecSync", container_id=container, cmd=command, timeout=20)
        if reply.exit_code:
            raise RuntimeError(f"{command}: {reply.exit_code}: {reply.stderr.decode()}")
        return str(reply.stdout.decode())

    def update(self, container: str, **resources: Any) -> None:
        """Set resources of a running container: ``cpu_shares``, ``cpuset_cpus``, …"""
        self.call(
            "UpdateContainerResources",
            container_id=container,
            linux=messages.LinuxContainerResources(**resources),
        )

    def containers(self) -> Iterable[Any]:
        """All containers but those of the pods themselves."""
        return list(self.call("ListContainers").containers)

    def pods(self) -> list[str]:
        """Names of all sandboxes."""
        return [each.id for each in self.call("ListPodSandbox").items]

    def state(self, container: str) -> int:
        """How it is."""
        return int(self.call("ContainerStatus", container_id=container).status.state)

    def cgroup_of(self, container: str) -> str:
        """Its cgroup, below each controller's folder, as the runtime was told to make it."""
        info = json.loads(self.call("ContainerStatus", container_id=container, verbose=True).info["info"])
        return str(info["runtimeSpec"]["linux"]["cgroupsPath"]).lstrip("/")


def _node_network() -> Any:
    return messages.NamespaceOption(network=messages.NODE)
