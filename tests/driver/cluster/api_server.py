"""An API server's side over real HTTP: claims, slices, nodes and events, with strict schemas and faults.

Objects have uids, versions and names made from ``generateName``; lists take field selectors and come in pages;
watches stream. Every slice that is written must be valid for the version of Kubernetes that is played.
"""

import queue
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import kubernetes_validate
import yaml

from tests.driver.cluster.api_http import (
    CLAIMS,
    EVENTS,
    GROUPS,
    NODES,
    SLICES,
    Document,
    Event,
    Fault,
    Handler,
    NotDoneError,
    Server,
    selected,
)

IS_A_CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}


class ApiServer:
    """A server on the loopback interface; use it as a context manager.

    ``dropped``: fields of devices that the server does not know and drops silently, as it does while a feature
    gate is off; ``drop_consumable`` names those of consumable capacity. ``fault``: spoils answers; ``delay``:
    seconds before each. ``away`` and ``back``: the port is closed and opened again. ``requests``: all that came.
    """

    tls: ssl.SSLContext | None = None
    """Speaks https with it, once it is set and the server comes ``back``."""

    def __init__(self, version: str = "1.36", node: str = "node-1", drop_consumable: bool = False) -> None:
        self.version, self.node, self.drop_consumable = version, node, drop_consumable
        self.dropped: tuple[str, ...] = ()
        self.fault: Fault = lambda method, path: None
        self.delay = 0.0
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self._objects: dict[str, dict[tuple[str, str], Document]] = {kind: {} for kind in GROUPS}
        self._version = self._compacted = 0
        self._log: list[tuple[int, Event]] = []
        self._watchers: list[queue.Queue[Event | None]] = []
        self._server: Server | None = None
        self._port = 0
        self.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})

    def __enter__(self) -> "ApiServer":
        self.back()
        return self

    def __exit__(self, *_: object) -> None:
        self.away()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port}"

    def kubeconfig(self, path: Path, ca: Path | None = None) -> Path:
        """A file by which clients find this server, and whom they trust."""
        trust = {"certificate-authority": str(ca)} if ca else {}
        clusters = [{"name": "c", "cluster": {"server": self.url, **trust}}]
        contexts = [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}]
        users = [{"name": "u", "user": {"token": "t"}}]
        document = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "c"}
        path.write_text(yaml.safe_dump(document))
        return path

    def away(self) -> None:
        """Close the port and every connection."""
        server, self._server = self._server, None
        if server is not None:
            with self._lock:
                for watcher in self._watchers:
                    watcher.put(None)
            server.shutdown()
            server.server_close()
            server.cut()

    def back(self) -> None:
        """Listen again, at the same port."""
        handler = type("Handler", (Handler,), {"api": self})
        self._server = Server(("127.0.0.1", self._port), handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def cut(self) -> None:
        """Close every connection; the server stays."""
        if self._server is not None:
            self._server.cut()

    def connections(self) -> int:
        """Clients that are connected."""
        return len(self._server.connections) if self._server else 0

    def put_claim(self, document: Document) -> Document:
        return self.put(CLAIMS, document)

    def delete_claim(self, namespace: str, name: str) -> None:
        self.delete(CLAIMS, namespace, name)

    def slices(self) -> list[Document]:
        return self.find(SLICES)[0]

    def events(self) -> list[Document]:
        return self.find(EVENTS)[0]

    def compact(self) -> None:
        """Forget what has happened: who watches from an older version is told that it is gone (410)."""
        with self._lock:
            self._version += 1
            self._compacted = self._version
            self._log.clear()

    def put(self, kind: str, document: Document, *, new: bool = False, dry_run: bool = False) -> Document:
        """Create or replace an object. ``new``: only create it, else ``NotDoneError``; ``dry_run``: only say."""
        with self._lock:
            version = self._version + 1
            metadata = {"namespace": "", **(document.get("metadata") or {})}
            if "name" not in metadata:
                metadata["name"] = f"{metadata['generateName']}{version:05d}"
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata["resourceVersion"] = str(version)
            kept = {**deepcopy(document), "metadata": metadata}
            key = (metadata["namespace"], metadata["name"])
            if new and key in self._objects[kind]:
                raise NotDoneError(409, f"{kind} {metadata['name']!r} already exists", metadata["name"])
            if not dry_run:
                self._version = version
                self._tell("MODIFIED" if key in self._objects[kind] else "ADDED", kind, kept)
                self._objects[kind][key] = kept
            return deepcopy(kept)

    def merge(self, kind: str, namespace: str, name: str, changes: Document) -> Document | None:
        """Change fields of an object, if it is there; the fields below them are not merged."""
        with self._lock:
            found = self.get(kind, namespace, name)
            return None if found is None else self.put(kind, {**found, **changes})

    def delete(self, kind: str, namespace: str, name: str) -> Document | None:
        with self._lock:
            found = self._objects[kind].pop((namespace, name), None)
            if found is not None:
                self._version += 1
                found["metadata"]["resourceVersion"] = str(self._version)
                self._tell("DELETED", kind, found)
            return found

    def delete_all(self, kind: str, fields: str = "") -> None:
        """What the kubelet does to the node's slices when it starts."""
        for each in self.find(kind, "", fields)[0]:
            self.delete(kind, each["metadata"]["namespace"], each["metadata"]["name"])

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        with self._lock:
            return deepcopy(self._objects[kind].get((namespace, name)))

    def find(self, kind: str, namespace: str = "", fields: str = "") -> tuple[list[Document], str]:
        """Objects of a kind, and the version of the list."""
        with self._lock:
            found = [
                deepcopy(each)
                for (own, _), each in self._objects[kind].items()
                if namespace in ("", own) and selected(each, fields)
            ]
            return found, str(self._version)

    @contextmanager
    def watching(self, since: int) -> Iterator["queue.Queue[Event | None]"]:
        """What happens after that version. Raises ``NotDoneError`` if that is no longer known."""
        told: queue.Queue[Event | None] = queue.Queue()
        with self._lock:
            if since < self._compacted:
                raise NotDoneError(410, f"too old resource version: {since} ({self._version})")
            for version, event in self._log:
                if version > since:
                    told.put(event)
            self._watchers.append(told)
        try:
            yield told
        finally:
            with self._lock:
                self._watchers.remove(told)

    def admit(self, kind: str, document: Document) -> Document:
        """The object as the server keeps it. Raises ``NotDoneError`` for one that is not valid."""
        if kind != SLICES:
            return document
        try:
            named = {**document, "metadata": {"name": "x", **document["metadata"]}}
            kubernetes_validate.validate(named, self.version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise NotDoneError(422, str(error)[:500]) from None
        consumable = ("allowMultipleAllocations", "requestPolicy") if self.drop_consumable else ()
        return _without(deepcopy(document), {*self.dropped, *consumable})

    def apply_status(self, namespace: str, name: str, applied: Document, manager: str) -> Document:
        """The claim with the devices of one manager replaced; those of others stay.

        Raises ``NotDoneError`` if it is gone, another one, or if what comes out is not valid.
        """
        with self._lock:
            claim = self.get(CLAIMS, namespace, name)
            if claim is None:
                raise NotDoneError(404, f"{CLAIMS} {name!r} not found", name)
            if applied["metadata"]["uid"] != claim["metadata"]["uid"]:
                raise NotDoneError(409, "the uid in the precondition is another one", name)
            devices = applied["status"]["devices"]
            others = [each for each in claim["status"].get("devices", []) if each["driver"] != manager]
            allocated = [_device_key(each) for each in claim["status"]["allocation"]["devices"]["results"]]
            if not all(_device_key(each) in allocated for each in devices):
                raise NotDoneError(422, "status.devices: a device that is not allocated")
            claim["status"]["devices"] = others + devices
            return self.put(CLAIMS, self._valid(claim))

    def _valid(self, claim: Document) -> Document:
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
        try:
            kubernetes_validate.validate({**IS_A_CLAIM, "spec": spec, **claim}, self.version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise NotDoneError(422, str(error)[:500]) from None
        return claim

    def _tell(self, operation: str, kind: str, document: Document) -> None:
        event = (operation, kind, deepcopy(document))
        self._log.append((self._version, event))
        for watcher in self._watchers:
            watcher.put(event)


def _device_key(each: Document) -> tuple[object, ...]:
    """By what the server tells the entries of ``status.devices`` apart."""
    return each["driver"], each["pool"], each["device"], each.get("shareID")


def _without(document: Document, fields: set[str]) -> Document:
    for device in document["spec"]["devices"]:
        for part in (device, *device.get("capacity", {}).values()):
            for field in fields & part.keys():
                del part[field]
    return document
