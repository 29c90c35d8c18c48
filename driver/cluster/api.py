"""The API server, through lightkube, with objects as plain JSON: what we do not know of them must not get lost."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from lightkube import Client, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.core.exceptions import ApiError, ConfigError, NotReadyError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from driver.cluster.transport import SLOWEST, TIMEOUT, WATCH, BoundedTransport, WatchEndedError
from driver.errors import RefusedError
from driver.names import DRIVER
from driver.ports import Document
from models import BadInputError
from topologies.readers.text import read_file
from topologies.readers.yaml_text import parse_yaml

PAGE = 20
"""Claims that are asked for at once. They are a few kB each, seldom a few hundred."""

LONGEST = 300
"""Characters of what the server says that go into our messages."""

MISSING, GONE, INVALID = "NotFound", 410, (400, 422)

Claim = create_namespaced_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
Slice = create_global_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
Node = create_global_resource("", "v1", "Node", "nodes")
Event = create_namespaced_resource("", "v1", "Event", "events")

BAD_SETTINGS = (
    httpx2.InvalidURL,
    ConfigError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)
BAD_ANSWERS = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    ConfigError,
    NotReadyError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""What lightkube raises when an answer is none, or is not what it should be."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class InvalidError(RefusedError):
    """The server says that what it was given is not valid: asking again will not help."""


class Api:
    """What the driver asks of the API server. Methods raise ``RefusedError("ApiAway")`` if it does not do it."""

    def __init__(self, client: Client, transport: BoundedTransport) -> None:
        self._client, self._transport = client, transport

    @classmethod
    def connect(cls, kubeconfig: str = "") -> "Api":
        """With a kubeconfig file, else as the service account of our pod. Raises ``BadInputError``."""
        where = kubeconfig or "service account"
        try:
            found = _read(Path(kubeconfig)) if kubeconfig else KubeConfig.from_service_account()
            config: Any = found.get()
            verify = verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
            transport = BoundedTransport(verify)
            timeout = httpx2.Timeout(TIMEOUT)
            return cls(Client(config, timeout=timeout, trust_env=False, transport=transport), transport)
        except BAD_SETTINGS as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            reason = (
                f"no access to the API server ({why}); give a kubeconfig that kubectl can use, or run in a pod"
            )
            raise BadInputError(reason, file=where, place="kubeconfig") from None

    def get(self, namespace: str, name: str, patience: float = SLOWEST) -> Document | None:
        """A claim; ``None`` if there is none. ``patience``: seconds for the whole exchange."""
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        with _asking("reading a claim"), self._transport.within(patience):
            return _or_none(lambda: self._client.get(Claim, name, namespace=namespace))

    def claims(self) -> Iterator[Document]:
        """All claims of the cluster, page by page: there may be very many."""
        with _asking("listing claims"):
            for each in self._client.list(Claim, namespace="*", chunk_size=PAGE):
                yield _plain(each)

    def node_uid(self, name: str) -> str | None:
        """The uid of a node."""
        with _asking("reading our node"):
            found = _or_none(lambda: self._client.get(Node, name))
            return None if found is None else str(found["metadata"]["uid"])

    def slices(self, node: str) -> tuple[list[Document], str]:
        """Our slices of a node, and the version of the list."""
        with _asking("listing slices"):
            listing = self._client.list(Slice, fields=_ours(node))
            found = [_plain(each) for each in listing]
            return [each for each in found if _is_ours(each, node)], listing.resourceVersion

    def create_slice(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create a slice; as the server keeps it, or would if it were meant."""
        with _asking("creating a slice"):
            return _plain(self._client.create(Slice(**document), dry_run=dry_run))

    def delete_slice(self, name: str) -> None:
        """Delete a slice, if it is there."""
        with _asking("deleting a slice"):
            _or_none(lambda: self._client.delete(Slice, name))

    def watch_slices(self, node: str, version: str) -> Iterator[tuple[str, Document]]:
        """What happens to our slices after that version of the list, until the server ends it."""
        since: Any = self._client.watch(Slice, fields=_ours(node), resource_version=version, server_timeout=WATCH)
        with _asking("watching slices"), closing(since):
            try:
                for operation, each in since:
                    yield operation, _plain(each)
            except WatchEndedError:
                return
            except httpx2.HTTPStatusError as error:
                if _code(error) != GONE:
                    raise

    def end_watches(self) -> None:
        """Wake those who watch, in their threads."""
        self._transport.end_watches()

    def create_event(self, namespace: str, document: Document) -> None:
        """Create an event."""
        with _asking("creating an event"):
            self._client.create(Event(**document), namespace=namespace)


def _read(kubeconfig: Path) -> KubeConfig:
    """A kubeconfig file, read within bounds. Raises one of ``BAD_SETTINGS``."""
    file = kubeconfig.expanduser()
    if not file.is_file():
        raise ConfigError("there is no such file")
    try:
        return KubeConfig.from_dict(parse_yaml(read_file(file)), fname=file)
    except BadInputError as error:
        raise ConfigError(str(BadInputError(error.reason, place=error.place))) from None


def at(document: object, *path: str) -> Any:  # noqa: ANN401 - whatever the server said
    """What a document has at a path, ``None`` where it has nothing, or not what the path needs."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except BAD_ANSWERS as error:
        invalid = isinstance(error, httpx2.HTTPStatusError) and _code(error) in INVALID
        message = f"{what}: the API server does not do it: {_why(error)[:LONGEST]}"
        raise (InvalidError if invalid else RefusedError)("ApiAway", message) from None


def _why(error: BaseException) -> str:
    """In one line. Where an answer that tells nothing led to the error, its status says more."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, httpx2.HTTPStatusError):
        cause = cause.__context__
    told = cause or error
    return " ".join(str(told).partition("\n")[0].split()) or type(told).__name__


def _or_none(call: Any) -> Document | None:  # noqa: ANN401 - lightkube's own types are too narrow
    """What the call returns; ``None`` if the server itself, and not something before it, says there is none."""
    try:
        found = call()
    except ApiError as error:
        if error.status.reason == MISSING:
            return None
        raise
    return None if found is None else _plain(found)


def _code(error: httpx2.HTTPStatusError) -> int | None:
    """Of an answer, or of an event that says how a watch has failed."""
    return error.status.code if isinstance(error, ApiError) else error.response.status_code


def _plain(found: Any) -> Document:  # noqa: ANN401 - whatever the server said
    if not isinstance(at(found, "metadata"), dict):
        raise TypeError("the answer is no object with metadata")
    return dict(found)


def _ours(node: str) -> dict[str, Any]:
    return {"spec.nodeName": node, "spec.driver": DRIVER}


def _is_ours(each: Document, node: str) -> bool:
    return (at(each, "spec", "driver"), at(each, "spec", "nodeName")) == (DRIVER, node)
