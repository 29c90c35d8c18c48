"""The API server's HTTP: paths, answers, watches, and answers that are spoilt on purpose."""

import json
import queue
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from tests.driver.cluster.api_server import ApiServer

Document = dict[str, Any]
Event = tuple[str, str, Document]
"""What has happened, to an object of which kind, and the object."""

SLICES, CLAIMS, NODES, EVENTS = "resourceslices", "resourceclaims", "nodes", "events"
GROUPS = {
    SLICES: "/apis/resource.k8s.io/v1",
    CLAIMS: "/apis/resource.k8s.io/v1",
    NODES: "/api/v1",
    EVENTS: "/api/v1",
}
REASONS = {404: "NotFound", 415: "UnsupportedMediaType", 409: "AlreadyExists", 410: "Expired", 422: "Invalid"}


class Spoilt(NamedTuple):
    """An answer in place of the right one. ``missing``: so many bytes are promised and never sent, the
    connection is closed; ``drip``: seconds between two bytes; ``headers``: more of them; ``raw``: the whole answer
    with its head, as it is sent instead."""

    status: int
    body: bytes
    missing: int = 0
    drip: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes = b""


Fault = Callable[[str, str], tuple[Any, ...] | None]
"""From method and path to a ``Spoilt``, or its first fields; ``None`` lets the request through."""


class NotDoneError(Exception):
    """What the server does not do, with the status that says why."""

    def __init__(self, code: int, message: str, name: str = "") -> None:
        self.code, self.name = code, name
        super().__init__(message)

    def status(self) -> Document:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": self.code,
            "reason": REASONS[self.code],
            "message": str(self),
            "details": {"name": self.name},
        }


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)

    def cut(self) -> None:
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away as they like."""


class Handler(BaseHTTPRequestHandler):
    api: ClassVar["ApiServer"]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self.server.connections.discard(self.connection)  # type: ignore[attr-defined]
        with suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_PATCH(self) -> None:
        self._serve(self._patch)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def _serve(self, act: Callable[[], None]) -> None:
        url = urlsplit(self.path)
        self.api.requests.append((self.command, self.path))
        self.query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(self.api.delay)
        if (fault := self.api.fault(self.command, self.path)) is not None:
            self._spoil(Spoilt(*fault))
            return
        try:
            self.kind, self.namespace, self.name = _where(url.path)
            act()
        except NotDoneError as error:
            self._answer(error.code, error.status())

    def _get(self) -> None:
        fields = self.query.get("fieldSelector", "")
        if self.name:
            self._answer_found(self.api.get(self.kind, self.namespace, self.name))
        elif "watch" in self.query:
            with self.api.watching(int(self.query.get("resourceVersion") or 0)) as told:
                self._watch(told, fields)
        else:
            self._list(*self.api.find(self.kind, self.namespace, fields))

    def _list(self, items: list[Document], version: str) -> None:
        first = int(self.query.get("continue") or 0)
        last = first + int(self.query.get("limit") or len(items) or 1)
        more = {"continue": str(last)} if last < len(items) else {}
        self._answer(
            200, {"kind": "List", "metadata": {"resourceVersion": version, **more}, "items": items[first:last]}
        )

    def _post(self) -> None:
        document = json.loads(self.body)
        if self.namespace:
            document["metadata"]["namespace"] = self.namespace
        kept = self.api.admit(self.kind, document)
        self._answer(201, self.api.put(self.kind, kept, new=True, dry_run=self.query.get("dryRun") == "All"))

    def _patch(self) -> None:
        """A change of an event, or server-side apply of a claim's status."""
        how = self.headers["Content-Type"]
        if (self.kind, how) == (EVENTS, "application/merge-patch+json"):
            self._answer_found(self.api.merge(EVENTS, self.namespace, self.name, json.loads(self.body)))
        elif (self.kind, how) == (CLAIMS, "application/apply-patch+yaml"):
            self._apply()
        else:
            raise NotDoneError(415, f"no patch of {self.kind} as {how!r}")

    def _apply(self) -> None:
        name, _, subresource = self.name.partition("/")
        if subresource != "status" or self.query.get("force") != "true":
            raise NotDoneError(422, "only the status of claims can be applied, by force")
        manager = self.query["fieldManager"]
        self._answer(200, self.api.apply_status(self.namespace, name, json.loads(self.body), manager))

    def _delete(self) -> None:
        if self.name:
            self._answer_found(self.api.delete(self.kind, self.namespace, self.name))
        else:
            self.api.delete_all(self.kind, self.query.get("fieldSelector", ""))
            self._answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def _watch(self, told: "queue.Queue[Event | None]", fields: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + float(self.query.get("timeoutSeconds") or 1800)
        with suppress(OSError):
            with suppress(queue.Empty):
                while (event := told.get(timeout=max(0.0, end - time.monotonic()))) is not None:
                    operation, kind, document = event
                    if kind == self.kind and selected(document, fields):
                        self._send_chunk(json.dumps({"type": operation, "object": document}).encode() + b"\n")
            self._send_chunk(b"")
        self.close_connection = True

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _answer_found(self, document: Document | None) -> None:
        if document is None:
            raise NotDoneError(404, f"{self.kind} {self.name!r} not found", self.name)
        self._answer(200, document)

    def _answer(self, status: int, document: Document) -> None:
        self._spoil(Spoilt(status, json.dumps(document).encode()))

    def _spoil(self, answer: Spoilt) -> None:
        self.close_connection = self.close_connection or bool(answer.missing or answer.raw)
        if not answer.raw:
            self._send_head(answer)
        body = answer.raw or answer.body
        size = 1 if answer.drip else max(1, len(body))
        with suppress(OSError):
            for first in range(0, len(body), size):
                self.wfile.write(body[first : first + size])
                time.sleep(answer.drip)

    def _send_head(self, answer: Spoilt) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body) + answer.missing))
        for header in answer.headers:
            self.send_header(*header)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: tests look at ``requests``."""


def _where(path: str) -> tuple[str, str, str]:
    """Kind, namespace and name that a path is about. Raises ``NotDoneError``."""
    for kind, prefix in GROUPS.items():
        steps = path.removeprefix(prefix + "/").split("/")
        namespace = ""
        if steps[0] == "namespaces" and len(steps) > 2:
            namespace, steps = steps[1], steps[2:]
        if path.startswith(prefix + "/") and steps[0] == kind:
            return kind, namespace, "/".join(steps[1:])
    raise NotDoneError(404, f"there is no {path}")


def selected(document: Document, fields: str) -> bool:
    """Whether a field selector is for the object."""
    for part in filter(None, fields.split(",")):
        path, _, wanted = part.replace("==", "=").partition("=")
        value: Any = document
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value != wanted:
            return False
    return True
