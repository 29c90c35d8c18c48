"""A container runtime's side of NRI over a real unix socket, with containerd's habits, the bad ones included.

Like containerd it has one lock for all that plugins are asked; applies updates under that lock; ignores updates
for containers that it does not have in its store yet; applies an update of a container that is not running to its
spec only, so that the kernel's mask stays what it was when the task was made; and lets containers start as they
are when no plugin answers.
"""

import itertools
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from driver.protos import nri_pb2 as nri
from models import format_cpuset, parse_cpuset, to_mask
from tests.driver.nri.wire import PluginEnd, PluginError, PluginGone

CREATED, RUNNING, STOPPED = nri.CONTAINER_CREATED, nri.CONTAINER_RUNNING, nri.CONTAINER_STOPPED
KNOWN_EVENTS = (1 << 11) - 1
SEPARATE = {
    nri.RUN_POD_SANDBOX: "RunPodSandbox",
    nri.STOP_POD_SANDBOX: "StopPodSandbox",
    nri.REMOVE_POD_SANDBOX: "RemovePodSandbox",
    nri.POST_CREATE_CONTAINER: "PostCreateContainer",
    nri.START_CONTAINER: "StartContainer",
    nri.POST_START_CONTAINER: "PostStartContainer",
    nri.POST_UPDATE_CONTAINER: "PostUpdateContainer",
    nri.REMOVE_CONTAINER: "RemoveContainer",
}


class NotCreated(Exception):  # noqa: N818 - what a kubelet sees
    """A plugin refused the container, at its creation or at its start."""


@dataclass
class FakeContainer:
    """A container: ``spec`` is the mask the runtime has noted, ``kernel`` the one its processes have."""

    id: str
    pod_uid: str
    name: str
    env: tuple[str, ...]
    cpus: str = ""
    mems: str = ""
    kernel: frozenset[int] | None = None
    state: int = CREATED
    created_at: int = 0
    updates: list[str] = field(default_factory=list)

    @property
    def cgroup(self) -> str:
        return f"/kubepods/pod{self.pod_uid}/{self.id}"


class Plugin:
    """A plugin as the runtime knows it."""

    def __init__(self, runtime: "FakeRuntime", sock: socket.socket) -> None:
        self.runtime, self.name, self.index, self.events = runtime, "", "", 0
        self.registered = threading.Event()
        self.end = PluginEnd(sock, self._serve, runtime.timed)

    def _serve(self, method: str, payload: bytes) -> Message:
        if method == "RegisterPlugin":
            request = nri.RegisterPluginRequest.FromString(payload)
            self.name, self.index = request.plugin_name, request.plugin_idx
            assert len(self.index) == 2
            assert self.index.isdigit()
            self.registered.set()
            return nri.Empty()
        assert method == "UpdateContainers", method
        return self.runtime.unsolicited(nri.UpdateContainersRequest.FromString(payload))


class FakeRuntime:
    """The runtime. ``masks()`` is what the kernel has; ``kernel(cgroup)`` reads it as the driver does.

    ``lose``: whether an update of this container is lost: noted in the spec, never applied. ``apply_delay``:
    seconds that one update takes; updates of a plugin that has closed its connection meanwhile are lost.
    ``separate``: call newer NRI's methods in place of StateChange. ``called``: its name and version.
    ``nri_version``: unsolicited updates are counted in ``deadlocks`` unless it allows them. ``chunk``: containers
    in one Synchronize. ``kernel_hidden``: the driver cannot read masks. ``cgroups``: a folder in which masks stand
    as the kernel would show them, for a driver in another process. ``timed``: told of each call to a plugin, and
    how many seconds it took, whether it was answered or not.
    """

    def __init__(
        self,
        path: Path,
        *,
        cpus: Iterable[int] = range(16),
        called: tuple[str, str] = ("fake", "1"),
        nri_version: str = "",
        separate: bool = False,
        lose: Callable[[str], bool] = lambda _: False,
        apply_delay: float = 0.0,
        chunk: int = 1000,
        timeout: float = 2.0,
        cgroups: Path | None = None,
        timed: Callable[[str, float], None] = lambda method, seconds: None,
    ) -> None:
        self.path, self.online, self.separate = path, frozenset(cpus), separate
        self.called, self.nri_version = called, nri_version
        self.lose, self.apply_delay, self.chunk, self.timeout = lose, apply_delay, chunk, timeout
        self.kernel_hidden, self.cgroups, self.timed = False, cgroups, timed
        self.containers: dict[str, FakeContainer] = {}
        self.pods: dict[str, str] = {}
        self.plugins: list[Plugin] = []
        self.faults: list[str] = []
        self.connections = self.deadlocks = 0
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._listener: socket.socket | None = None
        self.start_serving()

    # What a kubelet does

    def create(
        self,
        pod_uid: str,
        name: str,
        env: dict[str, str] | Iterable[str] = (),
        *,
        start: bool = True,
        cpus: str = "",
    ) -> FakeContainer:
        """Create a container, its pod first if need be, and start it. ``cpus``: those that a kubelet with a static
        CPU manager asks for. Raises ``NotCreated``."""
        variables = [f"{key}={value}" for key, value in env.items()] if isinstance(env, dict) else list(env)
        if pod_uid not in self.pods:
            self.run_pod(pod_uid)
        number = next(self._ids)
        container = FakeContainer(f"c{number:06d}", pod_uid, name, tuple(variables), cpus, created_at=number)
        self._ask_to_create(container)
        self.containers[container.id] = container
        self._event(nri.POST_CREATE_CONTAINER, container)
        if start:
            self.start(container.id)
        return container

    def start(self, container_id: str) -> None:
        """Make the task, ask the plugins, let it run. Raises ``NotCreated``."""
        container = self.containers[container_id]
        self._run_on(container, parse_cpuset(container.cpus) or self.online)
        try:
            self._event(nri.START_CONTAINER, container)
        except PluginError as error:
            self._run_on(container, None)
            container.state = STOPPED
            self._stop_event(container)
            raise NotCreated(str(error)) from None
        container.state = RUNNING
        self._event(nri.POST_START_CONTAINER, container)

    def update_resources(self, container_id: str, cpus: str = "") -> None:
        """What a kubelet's UpdateContainerResources does; without CPUs only shares are set."""
        container = self.containers[container_id]
        request = nri.UpdateContainerRequest(pod=self._pod(container.pod_uid), container=self._message(container))
        request.linux_resources.cpu.shares.value = 512
        request.linux_resources.cpu.cpus = cpus
        asked = nri.LinuxCPU()
        asked.CopyFrom(request.linux_resources.cpu)
        with self._lock:
            for plugin in self._subscribed(nri.UPDATE_CONTAINER):
                reply = self._ask(plugin, "UpdateContainer", request, nri.UpdateContainerResponse())
                for update in reply.update:
                    assert update.container_id == container_id
                    asked.MergeFrom(update.linux.resources.cpu)
        self._apply(container, asked)
        self._event(nri.POST_UPDATE_CONTAINER, container)

    def stop(self, container_id: str) -> None:
        """Its processes end."""
        container = self.containers[container_id]
        if container.state != STOPPED:
            self._run_on(container, None)
            container.state = STOPPED
            self._stop_event(container)

    def remove(self, container_id: str) -> None:
        """Stop and forget it."""
        self.stop(container_id)
        container = self.containers.pop(container_id)
        self._event(nri.REMOVE_CONTAINER, container)

    def run_pod(self, pod_uid: str) -> None:
        """Make a pod's sandbox."""
        self.pods[pod_uid] = f"sandbox-{next(self._ids)}"
        self._event(nri.RUN_POD_SANDBOX, pod_uid=pod_uid)

    def stop_pod(self, pod_uid: str) -> None:
        """Stop its containers, then its sandbox, which stays in the lists."""
        for container in [each for each in self.containers.values() if each.pod_uid == pod_uid]:
            self.stop(container.id)
        self._event(nri.STOP_POD_SANDBOX, pod_uid=pod_uid)

    def remove_pod(self, pod_uid: str) -> None:
        """Remove its containers and its sandbox."""
        for container in [each for each in self.containers.values() if each.pod_uid == pod_uid]:
            self.remove(container.id)
        self._event(nri.STOP_POD_SANDBOX, pod_uid=pod_uid)
        self._event(nri.REMOVE_POD_SANDBOX, pod_uid=pod_uid)
        del self.pods[pod_uid]

    # What the world sees

    def masks(self) -> dict[str, frozenset[int]]:
        """The kernel's mask of every container that has processes, by id."""
        return {
            each.id: each.kernel
            for each in list(self.containers.values())
            if each.kernel is not None and each.state == RUNNING
        }

    def kernel(self, cgroup: str) -> int | None:
        """The kernel's mask of a cgroup, as ``driver.nri.kernel.Kernel`` reads it."""
        container = self.containers.get(cgroup.rpartition("/")[2])
        if self.kernel_hidden or container is None or container.kernel is None:
            return None
        return to_mask(container.kernel)

    # Connections

    def start_serving(self) -> None:
        """Listen for plugins."""
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop_serving(self) -> None:
        """The runtime goes away; containers run on."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for plugin in list(self.plugins):
            plugin.end.close()
        self.plugins.clear()
        self.path.unlink(missing_ok=True)

    def restart(self) -> None:
        """Go away and come back."""
        self.stop_serving()
        self.start_serving()

    close = stop_serving

    def wait_for_plugin(self, timeout: float = 20.0) -> Plugin:
        """The first plugin that is connected and synchronized."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.plugins:
                return self.plugins[0]
            time.sleep(0.01)
        raise AssertionError("no plugin came")

    def unsolicited(self, request: nri.UpdateContainersRequest) -> nri.UpdateContainersResponse:
        """Updates out of the blue. Where NRI is older than 0.12.1 they may deadlock the real one."""
        if not self.nri_version or tuple(map(int, self.nri_version.split("."))) < (0, 12, 1):
            self.deadlocks += 1
        with self._lock:
            self._apply_all(request.update)
        return nri.UpdateContainersResponse()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._admit(Plugin(self, sock))

    def _admit(self, plugin: Plugin) -> None:
        try:
            if not plugin.registered.wait(5):
                plugin.end.close()
                return
            name, version = self.called
            configure = nri.ConfigureRequest(
                runtime_name=name, runtime_version=version, NRI_version=self.nri_version
            )
            reply = nri.ConfigureResponse.FromString(plugin.end.call("Configure", configure, self.timeout))
            plugin.events = reply.events or KNOWN_EVENTS
            if plugin.events & ~KNOWN_EVENTS:
                raise PluginError(f"invalid plugin events: {reply.events:#x}")
            with self._lock:
                self._apply_all(self._synchronize(plugin), plugin)
                self.plugins.append(plugin)
                self.plugins.sort(key=lambda each: each.index)
        except (PluginError, PluginGone) as error:
            self.faults += [str(error)] if str(error) else []
            plugin.end.close()
        self.faults += plugin.end.faults

    def _synchronize(self, plugin: Plugin) -> Iterable[nri.ContainerUpdate]:
        pods = [self._pod(uid) for uid in list(self.pods)]
        listed = [self._message(each) for each in list(self.containers.values()) if each.state != STOPPED]
        parts = [listed[at : at + self.chunk] for at in range(0, len(listed), self.chunk)] or [[]]
        for number, part in enumerate(parts):
            more = number < len(parts) - 1
            request = nri.SynchronizeRequest(pods=pods if number == 0 else [], containers=part, more=more)
            payload = plugin.end.call("Synchronize", request, self.timeout)
            reply = nri.SynchronizeResponse.FromString(payload)
            if more and (reply.update or not reply.more):
                raise PluginError("plugin does not handle split sync requests")
        return reply.update

    # What plugins are asked

    def _subscribed(self, event: int) -> list[Plugin]:
        self.plugins = [each for each in self.plugins if not each.end.closed.is_set()]
        return [each for each in self.plugins if each.events & (1 << (event - 1))]

    def _ask(self, plugin: Plugin, method: str, request: Message, reply: Message) -> Message:
        """The plugin's reply; the empty one if it is gone, for then the runtime goes on without it."""
        try:
            reply.ParseFromString(plugin.end.call(method, request, self.timeout))
        except PluginGone:
            plugin.end.close()
        finally:
            self.faults += plugin.end.faults
            plugin.end.faults = []
        return reply

    def _ask_to_create(self, container: FakeContainer) -> None:
        request = nri.CreateContainerRequest(pod=self._pod(container.pod_uid), container=self._message(container))
        request.container.state = nri.CONTAINER_UNKNOWN
        with self._lock:
            for plugin in self._subscribed(nri.CREATE_CONTAINER):
                try:
                    reply = self._ask(plugin, "CreateContainer", request, nri.CreateContainerResponse())
                except PluginError as error:
                    raise NotCreated(str(error)) from None
                if any(update.container_id == container.id for update in reply.update):
                    raise NotCreated(f"plugin asked update of {container.id} during creation")
                container.cpus = reply.adjust.linux.resources.cpu.cpus or container.cpus
                container.mems = reply.adjust.linux.resources.cpu.mems or container.mems
                self._apply_all(reply.update)

    def _stop_event(self, container: FakeContainer) -> None:
        request = nri.StopContainerRequest(pod=self._pod(container.pod_uid), container=self._message(container))
        with self._lock:
            for plugin in self._subscribed(nri.STOP_CONTAINER):
                self._apply_all(self._ask(plugin, "StopContainer", request, nri.StopContainerResponse()).update)

    def _event(self, event: int, container: FakeContainer | None = None, *, pod_uid: str = "") -> None:
        pod = self._pod(container.pod_uid if container else pod_uid)
        message = self._message(container) if container else None
        with self._lock:
            for plugin in self._subscribed(event):
                if self.separate:
                    lifecycle = nri.LifecycleRequest(pod=pod, container=message)
                    self._ask(plugin, SEPARATE[event], lifecycle, nri.Empty())
                else:
                    change = nri.StateChangeEvent(event=event, pod=pod, container=message)
                    self._ask(plugin, "StateChange", change, nri.Empty())

    # Masks

    def _apply_all(self, updates: Iterable[nri.ContainerUpdate], plugin: Plugin | None = None) -> None:
        for update in updates:
            if self.apply_delay:
                time.sleep(self.apply_delay)
            if plugin is not None and plugin.end.closed.is_set():
                return
            if container := self.containers.get(update.container_id):
                self._apply(container, update.linux.resources.cpu)

    def _apply(self, container: FakeContainer, cpu: nri.LinuxCPU) -> None:
        lost = self.lose(container.id)
        container.cpus = cpu.cpus or container.cpus
        container.mems = cpu.mems or container.mems
        container.updates.append(cpu.cpus)
        if container.state == RUNNING and cpu.cpus and not lost:
            self._run_on(container, parse_cpuset(cpu.cpus))

    def _run_on(self, container: FakeContainer, cpus: frozenset[int] | None) -> None:
        """The kernel's mask from now on; ``None``: it has no processes any more."""
        container.kernel = cpus
        if self.cgroups is None:
            return
        folder = self.cgroups / container.cgroup.lstrip("/")
        if cpus is None:
            shutil.rmtree(folder, ignore_errors=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / "cpuset.cpus.new"
        written.write_text(format_cpuset(cpus))
        written.rename(folder / "cpuset.cpus.effective")

    # Messages

    def _pod(self, pod_uid: str) -> nri.PodSandbox:
        sandbox = self.pods.get(pod_uid, "")
        return nri.PodSandbox(id=sandbox, name=f"pod-{pod_uid}", uid=pod_uid, namespace="default")

    def _message(self, each: FakeContainer) -> nri.Container:
        message = nri.Container(
            id=each.id,
            pod_sandbox_id=self.pods.get(each.pod_uid, ""),
            name=each.name,
            state=each.state,
            env=["PATH=/bin", *each.env],
            created_at=each.created_at,
        )
        message.linux.cgroups_path = each.cgroup
        message.linux.resources.cpu.cpus = each.cpus
        message.linux.resources.cpu.mems = each.mems
        return message


def text(cpus: Iterable[int]) -> str:
    """CPUs as a runtime writes them."""
    return format_cpuset(cpus)
