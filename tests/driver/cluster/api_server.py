"""An API server's side over real HTTP: claims, slices, nodes and events, with strict schemas and faults.

Objects have uids, versions and names made from ``generateName``; lists take field selectors; watches stream. Every
slice that is written must be valid for the version of Kubernetes that is played.
"""

import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import yaml

Document = dict[str, Any]
Fault = Callable[[str, str], tuple[int, bytes] | None]
"""From method and path to a status and body that are sent in place of the right ones, or ``None``."""

SLICES, CLAIMS, NODES, EVENTS = "resourceslices", "resourceclaims", "nodes", "events"
GROUPS = {
    SLICES: "/apis/resource.k8s.io/v1",
    CLAIMS: "/apis/resource.k8s.io/v1",
    NODES: "/api/v1",
    EVENTS: "/api/v1",
}
CONSUMABLE = ("allowMultipleAllocations",)


class ApiServer:
    """A server on the loopback interface; use it as a context manager.

    ``drop_consumable``: the feature gate of consumable capacity is off, so its fields are dropped silently.
    ``fault``: spoils answers. ``away`` and ``back``: the port is closed and opened again.
    """

    def __init__(self, version: str = "1.36", node: str = "node-1", drop_consumable: bool = False) -> None:
        self.version, self.node, self.drop_consumable = version, node, drop_consumable
        self.fault: Fault = lambda method, path: None
        self.delay = 0.0
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self._objects: dict[str, dict[tuple[str, str], Document]] = {kind: {} for kind in GROUPS}
        self._version = 0
        self._log: list[tuple[int, str, str, Document]] = []
        self._watchers: list[queue.Queue[tuple[str, str, Document] | None]] = []
        self._server: _Server | None = None
        self._port = 0
        self.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})

    def __enter__(self) -> "ApiServer":
        self.back()
        return self

    def __exit__(self, *_: object) -> None:
        self.away()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, path: Path) -> Path:
        """A file by which clients find this server."""
        clusters = [{"name": "c", "cluster": {"server": self.url}}]
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
            for connection in list(server.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def back(self) -> None:
        """Listen again, at the same port."""
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def put_claim(self, document: Document) -> Document:
        return self.put(CLAIMS, document)

    def delete_claim(self, namespace: str, name: str) -> None:
        self.delete(CLAIMS, namespace, name)

    def slices(self) -> list[Document]:
        with self._lock:
            return [deepcopy(each) for each in self._objects[SLICES].values()]

    def events(self) -> list[Document]:
        with self._lock:
            return [deepcopy(each) for each in self._objects[EVENTS].values()]

    def put(self, kind: str, document: Document) -> Document:
        """Create or replace an object."""
        with self._lock:
            self._version += 1
            metadata = {"namespace": "", **(document.get("metadata") or {})}
            if "name" not in metadata:
                metadata["name"] = f"{metadata['generateName']}{self._version:05d}"
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata["resourceVersion"] = str(self._version)
            kept = {**deepcopy(document), "metadata": metadata}
            key = (metadata["namespace"], metadata["name"])
            self._tell("MODIFIED" if key in self._objects[kind] else "ADDED", kind, kept)
            self._objects[kind][key] = kept
            return deepcopy(kept)

    def delete(self, kind: str, namespace: str, name: str) -> Document | None:
        with self._lock:
            found = self._objects[kind].pop((namespace, name), None)
            if found is not None:
                self._version += 1
                found["metadata"]["resourceVersion"] = str(self._version)
                self._tell("DELETED", kind, found)
            return found

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        with self._lock:
            return deepcopy(self._objects[kind].get((namespace, name)))

    def find(self, kind: str, namespace: str, fields: str) -> tuple[list[Document], str]:
        with self._lock:
            found = [
                deepcopy(each)
                for (own, _), each in self._objects[kind].items()
                if namespace in ("", own) and _selected(each, fields)
            ]
            return found, str(self._version)

    @contextmanager
    def watching(self, kind: str, fields: str, since: int) -> Iterator[Iterator[tuple[str, Document]]]:
        """What happens to objects of a kind after that version."""
        told: queue.Queue[tuple[str, str, Document] | None] = queue.Queue()
        with self._lock:
            for version, operation, of, document in self._log:
                if version > since:
                    told.put((operation, of, document))
            self._watchers.append(told)
        try:
            yield _events(told, kind, fields)
        finally:
            with self._lock:
                self._watchers.remove(told)

    def _tell(self, operation: str, kind: str, document: Document) -> None:
        said = deepcopy(document)
        self._log.append((self._version, operation, kind, said))
        for watcher in self._watchers:
            watcher.put((operation, kind, said))

    def admit(self, kind: str, document: Document) -> Document:
        """The object as the server keeps it. Raises ``ValueError`` for one that is not valid."""
        if kind == SLICES:
            named = {**document, "metadata": {**document["metadata"], "name": "x"}}
            kubernetes_validate.validate(named, self.version, strict=True)
        return _without_consumable(document) if kind == SLICES and self.drop_consumable else document


def _without_consumable(document: Document) -> Document:
    kept = deepcopy(document)
    for device in kept["spec"]["devices"]:
        device.pop("allowMultipleAllocations", None)
        for capacity in device.get("capacity", {}).values():
            capacity.pop("requestPolicy", None)
    return kept


def _events(
    told: "queue.Queue[tuple[str, str, Document] | None]", kind: str, fields: str
) -> Iterator[tuple[str, Document]]:
    while (event := told.get()) is not None:
        operation, of, document = event
        if of == kind and _selected(document, fields):
            yield operation, document


def _selected(document: Document, fields: str) -> bool:
    for part in filter(None, fields.split(",")):
        path, _, wanted = part.replace("==", "=").partition("=")
        value: Any = document
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value != wanted:
            return False
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)


class _Handler(BaseHTTPRequestHandler):
    api: ClassVar[ApiServer]
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        kind, namespace, name, query = self._where()
        if self._spoilt():
            return
        if name:
            self._answer_maybe(self.api.get(kind, namespace, name))
        elif "watch" in query:
            self._watch(kind, query)
        else:
            items, version = self.api.find(kind, namespace, query.get("fieldSelector", ""))
            self._answer(200, {"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    def do_POST(self) -> None:
        kind, namespace, _, _ = self._where()
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._spoilt():
            return
        if namespace:
            document["metadata"]["namespace"] = namespace
        try:
            self._answer(201, self.api.put(kind, self.api.admit(kind, document)))
        except kubernetes_validate.ValidationError as error:
            self._answer(422, _status(422, str(error)[:500]))

    def do_DELETE(self) -> None:
        kind, namespace, name, _ = self._where()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._spoilt():
            self._answer_maybe(self.api.delete(kind, namespace, name))

    def _where(self) -> tuple[str, str, str, dict[str, str]]:
        url = urlsplit(self.path)
        self.api.requests.append((self.command, self.path))
        time.sleep(self.api.delay)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        prefix = next(prefix for prefix in GROUPS.values() if url.path.startswith(prefix + "/"))
        steps = url.path.removeprefix(prefix + "/").split("/")
        namespace = ""
        if steps[0] == "namespaces" and len(steps) > 2:
            namespace, steps = steps[1], steps[2:]
        return steps[0], namespace, steps[1] if len(steps) > 1 else "", query

    def _spoilt(self) -> bool:
        fault = self.api.fault(self.command, self.path)
        if fault is not None:
            self._send(*fault)
        return fault is not None

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        since = int(query.get("resourceVersion") or 0)
        with self.api.watching(kind, query.get("fieldSelector", ""), since) as events:
            for operation, document in events:
                line = json.dumps({"type": operation, "object": document}).encode() + b"\n"
                try:
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()
                except OSError:
                    return
        self.close_connection = True

    def _answer_maybe(self, document: Document | None) -> None:
        self._answer(200, document) if document is not None else self._answer(404, _status(404, "not found"))

    def _answer(self, status: int, document: Document) -> None:
        self._send(status, json.dumps(document).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: tests look at ``requests``."""


def _status(code: int, message: str) -> Document:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
