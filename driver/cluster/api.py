"""What the driver asks of the API server: claims, slices, our node, events."""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError

from driver.cluster import objects
from driver.cluster.client import AnswerError, Client, Query
from driver.cluster.exchanges import LateError
from driver.cluster.listing import CutError, pages
from driver.cluster.objects import Object, Page, decode
from driver.cluster.transport import SLOWEST, WATCH
from driver.errors import RefusedError
from driver.names import DRIVER
from driver.ports import ClaimRef, Document
from models import BadInputError

LONGEST = 300
"""Characters of what the server says that go into our messages."""

MOST_SLICES = 1_000
"""Slices of our node that are looked at. We publish a handful."""

MISSING, GONE, INVALID = "NotFound", 410, (400, 422)

CLAIMS = "apis/resource.k8s.io/v1/resourceclaims"
SLICES = "apis/resource.k8s.io/v1/resourceslices"
NODES = "api/v1/nodes"
EVENTS = "api/v1/events"

MERGE = "application/merge-patch+json"

APPLY = "application/apply-patch+yaml"
"""Of which JSON is a part."""

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
    AnswerError,
    LateError,
    CutError,
    ConfigError,
    OSError,
    ValueError,
    LookupError,
    RecursionError,
)
"""What a request raises when the answer is none, or is not what it should be."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

T = TypeVar("T")


class ServerError(RefusedError):
    """The server does not do what it was asked for. ``code``: its HTTP status, 0 if it has not answered."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__("ApiAway", message)


class InvalidError(ServerError):
    """The server says that what it was given is not valid: asking again will not help."""


class Api:
    """What the driver asks of the API server. Methods raise ``RefusedError("ApiAway")`` if it does not do it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: str = "") -> "Api":
        """With a kubeconfig file, else as the service account of our pod. Raises ``BadInputError``."""
        where = kubeconfig or "service account"
        try:
            return cls(Client.connect(Path(kubeconfig) if kubeconfig else None))
        except BAD_SETTINGS as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            reason = (
                f"no access to the API server ({why}); give a kubeconfig that kubectl can use, or run in a pod"
            )
            raise BadInputError(reason, file=where, place="kubeconfig") from None

    def close(self) -> None:
        """Wake all who wait for the server, and ask it nothing from now on."""
        self._client.close()

    def get(self, namespace: str, name: str, patience: float = SLOWEST) -> Document | None:
        """A claim; ``None`` if there is none. ``patience``: seconds for the whole exchange."""
        end = time.monotonic() + patience
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        with _asking("reading a claim"):
            found = self._find(_in(namespace, CLAIMS, name), patience)
            return None if found is None else objects.claim(found, end - time.monotonic())

    def claims(self, uids: Collection[str], see: Callable[[Document], None]) -> None:
        """Show those claims of the cluster that have one of these uids, one after the other, as soon as they are
        found. If this returns, all claims of the cluster were looked through."""
        with _asking("listing claims"):
            for page in self._pages(CLAIMS):
                for each in page.items:
                    if each.metadata.uid in uids:
                        see(objects.claim(each, SLOWEST))

    def node_uid(self, name: str) -> str | None:
        """The uid of a node."""
        with _asking("reading our node"):
            found = self._find(f"{NODES}/{quote(name, safe='')}")
            if found is not None and not found.metadata.uid:
                raise ValueError("the node has no uid")
            return None if found is None else found.metadata.uid

    def slices(self, node: str, keep: Callable[[Document], T]) -> tuple[list[T], str]:
        """What ``keep`` makes of each of our slices of a node, and the version of the list."""
        kept: list[T] = []
        version = ""
        with _asking("listing slices"):
            for page in self._pages(SLICES, _ours(node)):
                ours = [each for each in page.items if objects.belongs_to(each, DRIVER, node)]
                if len(kept) + len(ours) > MOST_SLICES:
                    raise CutError(
                        f"this node has more than {MOST_SLICES} slices of ours; somebody else makes them"
                    )
                kept += [keep(objects.slice_(each, SLOWEST)) for each in ours]
                version = page.metadata.resource_version
        return kept, version

    def create_slice(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create a slice; as the server keeps it, or would if it were meant."""
        query = {"dryRun": "All"} if dry_run else {}
        with _asking("creating a slice"):
            return objects.slice_(self._client.ask("POST", SLICES, Object, query=query, body=document), SLOWEST)

    def delete_slice(self, name: str) -> None:
        """Delete a slice, if it is there."""
        with _asking("deleting a slice"):
            _or_none(lambda: self._client.ask("DELETE", f"{SLICES}/{quote(name, safe='')}", msgspec.Raw))

    def watch_slices(self, node: str, version: str) -> Iterator[tuple[str, str]]:
        """What happens to our slices after that version of the list, each with the slice's name, until the server
        ends it."""
        query: Query = {**_ours(node), "resourceVersion": version, "timeoutSeconds": WATCH}
        with _asking("watching slices"):
            try:
                for change in self._client.watch(SLICES, query):
                    yield change.type, decode(change.object, Object).metadata.name
            except AnswerError as error:
                if error.code != GONE:
                    raise

    def end_watches(self) -> None:
        """Wake those who watch, in their threads."""
        self._client.end_watches()

    def create_event(self, namespace: str, document: Document) -> str:
        """Create an event. Its name."""
        with _asking("creating an event"):
            return self._client.ask("POST", _in(namespace, EVENTS), Object, body=document).metadata.name

    def patch_event(self, namespace: str, name: str, changes: Document) -> str:
        """Change fields of an event. Its name."""
        with _asking("changing an event"):
            path = _in(namespace, EVENTS, name)
            return self._client.ask("PATCH", path, Object, body=changes, form=MERGE).metadata.name

    def apply_claim_status(self, claim: ClaimRef, document: Document) -> None:
        """Apply our part of a claim's status (server-side apply): what others have written stays."""
        path = f"{_in(claim.namespace, CLAIMS, claim.name)}/status"
        query = {"fieldManager": DRIVER, "force": "true"}
        with _asking("writing a claim's status"):
            self._client.ask("PATCH", path, msgspec.Raw, query=query, body=document, form=APPLY)

    def _find(self, path: str, patience: float = SLOWEST) -> Object | None:
        return _or_none(lambda: self._client.ask("GET", path, Object, patience=patience))

    def _pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Page]:
        return pages(lambda which: self._client.ask("GET", path, Page, query={**(query or {}), **which}))


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
        code = error.code if isinstance(error, AnswerError) else 0
        why = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
        message = f"{what}: the API server does not do it: {why[:LONGEST]}"
        raise (InvalidError if code in INVALID else ServerError)(message, code) from None


def _or_none(ask: Callable[[], T]) -> T | None:
    """What is found; ``None`` if the server itself, and not something before it, says that there is none."""
    try:
        return ask()
    except AnswerError as error:
        if error.reason == MISSING:
            return None
        raise


def _in(namespace: str, path: str, name: str = "") -> str:
    """The path of a resource, or of an object, in a namespace."""
    group, _, plural = path.rpartition("/")
    return "/".join(
        [group, "namespaces", quote(namespace, safe=""), plural, *([quote(name, safe="")] if name else [])]
    )


def _ours(node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node},spec.driver={DRIVER}"}
