"""A kubelet's side of the plugin protocols over real gRPC sockets: registration, claims, health.

Like the kubelet it finds a plugin by its socket in ``plugins_registry``, asks who it is, says that it is
registered, and from then on talks to the endpoint that the plugin named. It insists on what the real one
insists on: a known type and versions, a reply for every claim asked for, pool and device names.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc
from google.protobuf.message import Message

from driver.ports import ClaimRef
from driver.protos import dra_pb2 as dra
from driver.protos import health_pb2 as health
from driver.protos import registration_pb2 as registration
from tests.driver.kubelet.cpu_manager import CPUManager

Version = Literal["v1", "v1beta1"]
HealthVersion = Literal["v1", "v1beta1", "v1alpha1"]

DEADLINE = 45.0
"""Seconds for a call about claims, as the kubelet has it."""

CDI_ID = re.compile(r"[a-z0-9.]+/[a-z0-9]+=[A-Za-z0-9_.:-]+")


class NotRegistered(Exception):  # noqa: N818 - a state, not a mistake
    """The plugin is not there, or is none that a kubelet takes."""


class Refused(Exception):  # noqa: N818 - what a kubelet sees
    """The plugin would not do it for this claim."""


@dataclass(frozen=True)
class Device:
    """One device of a prepared claim, as the kubelet remembers it."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]
    share_id: str | None


@dataclass(frozen=True)
class Prepared:
    """The reply for one claim: devices, or why not."""

    devices: tuple[Device, ...] = ()
    error: str = ""

    @property
    def cdi(self) -> tuple[str, ...]:
        """CDI devices that the runtime is to be told, each once."""
        return tuple(dict.fromkeys(name for device in self.devices for name in device.cdi))

    def require(self) -> tuple[Device, ...]:
        """The devices. Raises ``Refused``."""
        if self.error:
            raise Refused(self.error)
        return self.devices


UNANSWERED = grpc.RpcError
"""The driver has not answered in time, or nobody is at its socket."""


@dataclass(frozen=True)
class Health:
    """What the plugin says of one device."""

    status: Literal["unknown", "healthy", "unhealthy"]
    message: str = ""


def reference(claim: ClaimRef | Mapping[str, Any]) -> ClaimRef:
    """The claim's names: of themselves, or of the object that the API server has."""
    if isinstance(claim, ClaimRef):
        return claim
    meta = claim["metadata"]
    return ClaimRef(meta["uid"], meta["namespace"], meta["name"])


class Kubelet:
    """A kubelet whose folder is ``root`` (``/var/lib/kubelet``). Use it as a context, or ``close`` it."""

    def __init__(self, root: Path, driver: str = "dra.cpu") -> None:
        self.root, self.driver = root, driver
        self.info: registration.PluginInfo | None = None
        self._channels: dict[Path, grpc.Channel] = {}
        self.cpu_manager = CPUManager(root)

    def __enter__(self) -> "Kubelet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def sockets(self) -> list[Path]:
        """Registration sockets of the driver."""
        found = (self.root / "plugins_registry").glob(f"{self.driver}*-reg.sock")
        # A driver that begins removes what a killed one has left, maybe right now.
        return sorted(path for path in found if path.is_socket())

    def register(self, timeout: float = 20.0) -> registration.PluginInfo:
        """Wait for the plugin, ask who it is, and tell it that it is registered."""
        self.info = self._introduce(timeout)
        self.notify()
        return self.info

    def notify(self, error: str = "") -> None:
        """Tell the plugin that it is registered, or why not."""
        status = registration.RegistrationStatus(plugin_registered=not error, error=error)
        self._call(self._socket(), REGISTRATION, "NotifyRegistrationStatus", status, NOTHING, timeout=20)

    def prepare(
        self,
        *claims: ClaimRef | Mapping[str, Any],
        version: Version = "v1",
        timeout: float = DEADLINE,
    ) -> dict[str, Prepared]:
        """Prepare the claims in one call. By uid: devices or an error."""
        request = dra.NodePrepareResourcesRequest(claims=map(_claim, claims))
        reply = self._dra(version, "NodePrepareResources", request, dra.NodePrepareResourcesResponse, timeout)
        _check_uids(claims, reply.claims)
        return {uid: _prepared(each) for uid, each in reply.claims.items()}

    def unprepare(
        self,
        *claims: ClaimRef | Mapping[str, Any],
        version: Version = "v1",
        timeout: float = DEADLINE,
    ) -> dict[str, str]:
        """Unprepare the claims in one call. By uid: an error, or nothing if it went well."""
        request = dra.NodeUnprepareResourcesRequest(claims=map(_claim, claims))
        reply = self._dra(version, "NodeUnprepareResources", request, dra.NodeUnprepareResourcesResponse, timeout)
        _check_uids(claims, reply.claims)
        return {uid: each.error for uid, each in reply.claims.items()}

    def watch_health(
        self, version: HealthVersion = "v1", timeout: float | None = None
    ) -> Iterator[dict[tuple[str, str], Health]]:
        """What the plugin says of its devices, by pool and device, whenever it says so, until ``timeout``."""
        watch = self._channel(self.endpoint).unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            request_serializer=health.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health.NodeWatchResourcesResponse.FromString,
        )
        stream = watch(health.NodeWatchResourcesRequest(), timeout=timeout)
        try:
            for reply in stream:
                yield {(each.device.pool_name, each.device.device_name): _health(each) for each in reply.devices}
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                raise
        finally:
            stream.cancel()

    @property
    def endpoint(self) -> Path:
        """Where the plugin said that it serves."""
        if self.info is None:
            raise NotRegistered("no plugin is registered")
        return Path(self.info.endpoint)

    def _introduce(self, timeout: float) -> registration.PluginInfo:
        end = time.monotonic() + timeout
        while True:
            try:
                info = self._call(
                    self._socket(), REGISTRATION, "GetInfo", registration.InfoRequest(), registration.PluginInfo, 5
                )
                return _checked(info, self.driver)
            except (NotRegistered, grpc.RpcError) as error:
                if time.monotonic() > end:
                    raise NotRegistered(f"no plugin within {timeout} s") from error
                time.sleep(0.02)

    def _socket(self) -> Path:
        sockets = self.sockets()
        if len(sockets) != 1:
            raise NotRegistered(f"{len(sockets)} registration sockets: {sockets}")
        return sockets[0]

    def _dra(self, version: Version, method: str, request: Message, reply: type, timeout: float) -> Any:
        service = f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
        return self._call(self.endpoint, service, method, request, reply, timeout)

    def _call(self, path: Path, service: str, method: str, request: Message, reply: type, timeout: float) -> Any:
        call: Callable[..., Any] = self._channel(path).unary_unary(
            f"/{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,  # type: ignore[attr-defined]
        )
        return call(request, timeout=timeout, wait_for_ready=False)

    def _channel(self, path: Path) -> grpc.Channel:
        if path not in self._channels:
            options = [
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.min_reconnect_backoff_ms", 5000),  # how long a connection may take
                ("grpc.max_reconnect_backoff_ms", 200),
                ("grpc.use_local_subchannel_pool", 1),
            ]
            self._channels[path] = grpc.insecure_channel(f"unix:{path}", options=options)
        return self._channels[path]


REGISTRATION = "pluginregistration.Registration"
NOTHING = registration.RegistrationStatusResponse


def _claim(claim: ClaimRef | Mapping[str, Any]) -> dra.Claim:
    ref = reference(claim)
    return dra.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name)


def _checked(info: registration.PluginInfo, driver: str) -> registration.PluginInfo:
    """The kubelet's own conditions for a DRA plugin."""
    if (info.type, info.name) != ("DRAPlugin", driver):
        raise NotRegistered(f"a {info.type!r} named {info.name!r}")
    if not {"v1.DRAPlugin", "v1beta1.DRAPlugin"} & set(info.supported_versions):
        raise NotRegistered(f"only versions {list(info.supported_versions)}")
    if not Path(info.endpoint).is_absolute():
        raise NotRegistered(f"endpoint {info.endpoint!r} is no absolute path")
    return info


def _check_uids(claims: Iterable[ClaimRef | Mapping[str, Any]], replies: Mapping[str, object]) -> None:
    asked, got = {reference(claim).uid for claim in claims}, set(replies)
    assert asked == got, f"asked for {sorted(asked)}, got a reply for {sorted(got)}"


def _prepared(reply: dra.NodePrepareResourceResponse) -> Prepared:
    if reply.error:
        return Prepared(error=reply.error)
    for device in reply.devices:
        assert device.pool_name
        assert device.device_name
        assert all(CDI_ID.fullmatch(name) for name in device.cdi_device_ids), device.cdi_device_ids
        assert not any("/" in request for request in device.request_names), device.request_names
    return Prepared(
        tuple(
            Device(
                tuple(device.request_names),
                device.pool_name,
                device.device_name,
                tuple(device.cdi_device_ids),
                device.share_id if device.HasField("share_id") else None,
            )
            for device in reply.devices
        )
    )


def _health(each: health.DeviceHealth) -> Health:
    name = health.HealthStatus.Name(each.health).lower()
    assert len(each.message) <= 1024
    assert each.last_updated_time > 0
    return Health(name, each.message)  # type: ignore[arg-type]
