"""The container that ``deploy/`` describes, of the image that it builds, without any right but its mounts."""

import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.host import POD_UID
from driver.node_name import NODE_NAME
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.cri import messages
from tests.driver.runtime.masks import mask, threads
from tests.driver.runtime.node import Node, until

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PROGRAM = "/opt/cpusat/bin/cpusat-driver"
PYTHON = "/opt/cpusat/bin/python"

LOG = "driver.log"

NOBODY = 65532
"""The image's own user."""


class DeployedNode(Node):
    """A node whose driver runs as a container of its image, the kubelet's folder being elsewhere."""

    def __init__(self, folder: Path, containerd: Containerd) -> None:
        super().__init__(folder, containerd)
        self.port = _free_port()
        (pod,) = (
            document["spec"]["template"]["spec"]
            for document in yaml.safe_load_all((DEPLOY / "base/daemonset.yaml").read_text())
        )
        (self.container,) = pod["containers"]
        self.volumes = {each["name"]: each for each in pod["volumes"]}
        self.driver = ""

    def start_driver(self) -> None:
        """Run the container, and wait until it serves the kubelet."""
        (self.folder / "k/plugins/dra.cpu").mkdir(parents=True)
        self.kubelet.cpu_manager.serve()
        pod = self.cri.run_pod(str(uuid.uuid4()), logs=self.folder)
        self.driver = self.cri.add(pod, self._config_of(pod.uid))
        self.kubelet.register(timeout=60)

    def end_driver(self, how: Any = None) -> None:
        """It goes with all other pods."""
        self.kubelet.cpu_manager.close()

    def page(self, path: str) -> str:
        """What the driver answers at a path."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as reply:
                return str(reply.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def state(self) -> str:
        """What ``cpusat-driver state`` prints in the container."""
        flags = ["--config=/etc/cpusat/config.yaml", f"--ledger={self.folder / 'k/plugins/dra.cpu/ledger'}"]
        return self.cri.execute(self.driver, PROGRAM, "state", *flags)

    def bystander(self) -> str:
        """A container of the image without any of the DaemonSet's settings, which waits."""
        pod = self.cri.run_pod(str(uuid.uuid4()), logs=self.folder)
        config = messages.ContainerConfig(
            metadata=messages.ContainerMetadata(name="bystander"),
            image=messages.ImageSpec(image=self.container["image"]),
            command=[PYTHON, "-c", "import time; time.sleep(1e6)"],
            mounts=[self._mount("/etc/cpusat", self.folder / "config", readonly=True)],
            log_path="bystander.log",
            linux=messages.LinuxContainerConfig(resources=messages.LinuxContainerResources(cpu_shares=100)),
        )
        return self.cri.add(pod, config)

    def log(self) -> str:
        """What the driver has said."""
        return (self.folder / LOG).read_text()

    def _config_of(self, pod_uid: str) -> Any:
        rights, limits = self.container["securityContext"], self.container["resources"]["limits"]
        values = {NODE_NAME: "node-1", POD_UID: pod_uid}
        assert [each["name"] for each in self.container["env"]] == list(values)
        return messages.ContainerConfig(
            metadata=messages.ContainerMetadata(name=self.container["name"]),
            image=messages.ImageSpec(image=self.container["image"]),
            args=[*self.container["args"], *self._flags()],
            envs=[messages.KeyValue(key=key, value=value.encode()) for key, value in values.items()],
            mounts=list(self._mounts()),
            log_path=LOG,
            linux=messages.LinuxContainerConfig(
                resources=messages.LinuxContainerResources(
                    memory_limit_in_bytes=int(limits["memory"].removesuffix("Mi")) << 20, oom_score_adj=0
                ),
                security_context=messages.LinuxContainerSecurityContext(
                    namespace_options=messages.NamespaceOption(network=messages.NODE),
                    selinux_options=messages.SELinuxOption(**rights["seLinuxOptions"]),
                    run_as_user=messages.Int64Value(value=rights["runAsUser"]),
                    run_as_group=messages.Int64Value(value=rights["runAsGroup"]),
                    capabilities=messages.Capability(drop_capabilities=rights["capabilities"]["drop"]),
                    readonly_rootfs=rights["readOnlyRootFilesystem"],
                    no_new_privs=not rights["allowPrivilegeEscalation"],
                    seccomp=messages.SecurityProfile(profile_type="RuntimeDefault"),
                ),
            ),
        )

    def _flags(self) -> list[str]:
        """What differs here: where the kubelet's folder is, and how to reach the API server."""
        config = self.folder / "config"
        config.mkdir()
        self.api.kubeconfig(config / "kubeconfig")
        (config / "config.yaml").write_text((DEPLOY / "overlays/machine/config.yaml").read_text())
        return [
            f"--kubelet-root-dir={self.folder / 'k'}",
            "--kubeconfig=/etc/cpusat/kubeconfig",
            f"--bind-address=127.0.0.1:{self.port}",
        ]

    def _mounts(self) -> Iterator[Any]:
        places = {
            "config": self.folder / "config",
            "cdi": self.containerd.cdi_dir,
            "nri": self.containerd.nri_socket.parent,
            "tmp": self.folder / "tmp",
        }
        places["tmp"].mkdir()
        for each in self.container["volumeMounts"]:
            volume = self.volumes[each["name"]]
            there = places.get(each["name"]) or self._relocated(volume["hostPath"]["path"])
            yield self._mount(self._relocated(each["mountPath"]), there, readonly=each.get("readOnly", False))

    def _relocated(self, path: str) -> str:
        return path.replace("/var/lib/kubelet", str(self.folder / "k"))

    def _mount(self, container: str, host: object, *, readonly: bool) -> Any:
        return messages.Mount(container_path=container, host_path=str(host), readonly=readonly)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def deploying(containerd: Containerd, driver_image: Path) -> Containerd:
    """A containerd that has the image."""
    containerd.add_image(driver_image)
    return containerd


@pytest.fixture
def node(deploying: Containerd, short_path: Path) -> Iterator[DeployedNode]:
    node = DeployedNode(short_path, deploying)
    with node.open():
        yield node
        assert "Traceback" not in node.log()


def status_of(node: DeployedNode, container: str) -> dict[str, str]:
    """What the kernel says of a container's first process."""
    text = (_process(node, container) / "status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _process(node: DeployedNode, container: str) -> Path:
    return Path("/proc") / str(threads(node.cri.cgroup_of(container))[0])


def test_the_deployed_container_serves_without_any_privilege(node: DeployedNode) -> None:
    status, mounts = status_of(node, node.driver), (_process(node, node.driver) / "mounts").read_text()
    (root,) = (line.split() for line in mounts.splitlines() if line.split()[1] == "/")
    assert root[3].split(",")[0] == "ro"
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    until("it is ready", lambda: node.page("/readyz") == "ok\n")
    assert node.kubelet.cpu_manager.calls, "the kubelet is asked at a socket that is mounted read-only"
    neighbour, ref = node.run(name="neighbour"), node.claim()
    cpus = node.prepare(ref)
    carrier = node.run(ref)
    assert (mask(carrier.cgroup), node.first_mask(carrier)) == (cpus, cpus)
    node.check("a claim")
    assert not mask(neighbour.cgroup) & cpus
    assert not mask(node.cri.cgroup_of(node.driver)) & cpus
    assert f"held by {ref.namespace}/{ref.name}" in node.state()
    node.unprepare(ref)


def test_the_image_has_what_its_solver_needs(node: DeployedNode) -> None:
    until("the worker has warmed up with CP-SAT", lambda: "is ready after" in node.log(), 120)
    ref = node.claim()
    node.prepare(ref)
    assert node.ledger[ref.uid].engine in ("dp", "cpsat")
    node.unprepare(ref)


def test_whoever_runs_the_image_without_more_is_nobody(node: DeployedNode) -> None:
    container = node.bystander()
    status = status_of(node, container)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(NOBODY)}
    told = node.cri.execute(
        container, PROGRAM, "check", "--config=/etc/cpusat/config.yaml", "--topology=socket:2 core:4"
    )
    assert told == "ok   /etc/cpusat/config.yaml: 1 device with 7 CPUs of 2s1n-8c8t\n"
