"""The API server, through lightkube, with objects as plain JSON: what we do not know of them must not get lost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from yaml import YAMLError

from driver.errors import RefusedError
from driver.names import DRIVER
from driver.ports import Document
from models import BadInputError

TIMEOUT = 5.0
"""Seconds for one call. The kubelet waits 45 for us."""

WATCH = 60
"""Seconds after which the server ends a watch, so that a dead connection does not go unnoticed for ever."""

NOT_FOUND, GONE = 404, 410

Claim = create_namespaced_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
Slice = create_global_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
Node = create_global_resource("", "v1", "Node", "nodes")
Event = create_namespaced_resource("", "v1", "Event", "events")

T = TypeVar("T")


class Api:
    """What the driver asks of the API server. Methods raise ``RefusedError("ApiAway")`` if it does not do it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: str = "") -> "Api":
        """With a kubeconfig file, else as the service account of our pod. Raises ``BadInputError``."""
        where = kubeconfig or "service account"
        try:
            config = KubeConfig.from_file(Path(kubeconfig)) if kubeconfig else KubeConfig.from_service_account()
            return cls(Client(config.get(), namespace="default", timeout=httpx2.Timeout(TIMEOUT), trust_env=False))
        except (ConfigError, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInputError(f"no access to the API server: {error}", file=where, place="kubeconfig") from None

    def get(self, namespace: str, name: str) -> Document | None:
        """A claim; ``None`` if there is none."""
        return self._maybe(
            "reading a claim", lambda: self._client.get(Claim, name, namespace=namespace or "default")
        )

    def claims(self) -> list[Document]:
        """All claims of the cluster."""
        return self._do(
            "listing claims", lambda: [_plain(each) for each in self._client.list(Claim, namespace="*")]
        )

    def node_uid(self, name: str) -> str | None:
        """The uid of a node."""
        node = self._maybe("reading our node", lambda: self._client.get(Node, name))
        return None if node is None else str(node.get("metadata", {}).get("uid", ""))

    def slices(self, node: str) -> tuple[list[Document], str]:
        """Our slices of a node, and the version of the list."""
        return self._do("listing slices", lambda: self._slices(node))

    def _slices(self, node: str) -> tuple[list[Document], str]:
        listing = self._client.list(Slice, fields=_ours(node))
        found = [_plain(each) for each in listing]
        return [each for each in found if _is_ours(each, node)], str(listing.resourceVersion)

    def create_slice(self, document: Document) -> Document:
        """Create a slice; as the server keeps it."""
        return self._do("creating a slice", lambda: _plain(self._client.create(Slice(**document))))

    def delete_slice(self, name: str) -> None:
        """Delete a slice, if it is there."""
        self._maybe("deleting a slice", lambda: self._client.delete(Slice, name))

    def watch_slices(self, node: str, version: str) -> Iterator[tuple[str, Document]]:
        """What has happened to our slices since that version of the list, for ever: what, and to which slice."""
        try:
            since = self._client.watch(Slice, fields=_ours(node), resource_version=version, server_timeout=WATCH)
            for operation, each in since:
                yield operation, _plain(each)
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            raise _away("watching slices", error) from None

    def create_event(self, namespace: str, document: Document) -> None:
        """Create an event."""
        self._do("creating an event", lambda: self._client.create(Event(**document), namespace=namespace))

    def _maybe(self, what: str, call: Callable[[], Any]) -> Document | None:
        try:
            found = self._do(what, call)
        except _MissingError:
            return None
        return None if found is None else _plain(found)

    def _do(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except ApiError as error:
            if error.response.status_code == NOT_FOUND:
                raise _MissingError("ApiAway", f"{what}: {error}") from None
            raise _away(what, error) from None
        except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _away(what, error) from None


class _MissingError(RefusedError):
    """The server says that there is none."""


def _away(what: str, error: Exception) -> RefusedError:
    why = str(error) or type(error).__name__
    return RefusedError("ApiAway", f"{what}: the API server does not do it: {why[:300]}")


def _plain(found: Any) -> Document:  # noqa: ANN401 - whatever the server said
    if not isinstance(found, dict):
        raise TypeError("no object")
    return dict(found)


def _ours(node: str) -> dict[str, Any]:
    return {"spec.nodeName": node, "spec.driver": DRIVER}


def _is_ours(each: Document, node: str) -> bool:
    spec = each.get("spec")
    return isinstance(spec, dict) and spec.get("driver") == DRIVER and spec.get("nodeName") == node
