"""What we keep of the API server's objects. All else is skipped while an answer is decoded, and costs no memory.

An answer has at most 2 MiB (``transport.LARGEST``), of which Python could make 50 MB of small objects. Here there
is at most this in memory at a time, whatever the server says: 8 answers as they came (36 MB), 2 pages of a list
(52 MB), 4 large parsed objects (60 MB), and as many small ones as there are callers (32 of the kubelet's: 30 MB).
That makes 180 MB. Decoding an answer holds the interpreter for 5 ms, parsing a large object for 20.
"""

import threading
import weakref
from typing import Any, TypeVar

import msgspec

from driver.ports import Document

LARGEST_PART, MOST_PARTS = 1 << 20, 100_000
"""Bytes, and values, of what is parsed of one object. The API's own limits on claims and slices are well below."""

SMALL_PART, FEW_PARTS = 64 << 10, 4_000
"""What any number of may be there at the same time."""

MOST_LARGE = 4
"""Large parsed objects at the same time."""

T = TypeVar("T")


class Metadata(msgspec.Struct, frozen=True):
    """Which object it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class Object(msgspec.Struct, frozen=True):
    """Any object; ``spec`` and ``status`` as they came."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class PageMetadata(msgspec.Struct, frozen=True):
    """Where the next page begins, if there is one, and the version of the list."""

    resource_version: str = msgspec.field(name="resourceVersion")
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    metadata: PageMetadata
    items: list[Object]


class Change(msgspec.Struct, frozen=True):
    """What a watch tells."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, frozen=True):
    """Why the server does not do something."""

    code: int = 0
    reason: str = ""
    message: str = ""


class _ClaimStatus(msgspec.Struct, frozen=True):
    allocation: msgspec.Raw = msgspec.Raw(b"null")
    reserved_for: msgspec.Raw = msgspec.field(name="reservedFor", default=msgspec.Raw(b"null"))


class _SliceSpec(msgspec.Struct, frozen=True):
    driver: str = ""
    node: str = msgspec.field(name="nodeName", default="")


class _Parsed(dict[str, Any]):
    """A document that takes one of the places for large ones as long as it is there."""

    __slots__ = ("__weakref__",)


_places = threading.BoundedSemaphore(MOST_LARGE)


def decode(content: bytes | msgspec.Raw, kind: type[T]) -> T:
    """JSON as an object of that kind. Raises ``ValueError`` or ``RecursionError``."""
    return msgspec.json.decode(content, type=kind)


def claim(found: Object, patience: float) -> Document:
    """A claim: which one it is, its allocation, and who may carry it.

    A large one waits for a place, at most so many seconds. Raises ``ValueError`` or ``RecursionError``.
    """
    status = _ClaimStatus() if bytes(found.status) == b"null" else decode(found.status, _ClaimStatus)
    document = _room_for(status.allocation, status.reserved_for, patience=patience)
    said = {"allocation": decode(status.allocation, Any), "reservedFor": decode(status.reserved_for, Any)}
    document.update(metadata=msgspec.to_builtins(found.metadata), status=said)
    return document


def slice_(found: Object, patience: float) -> Document:
    """A slice: which one it is, and its spec. As ``claim``."""
    document = _room_for(found.spec, patience=patience)
    document.update(metadata=msgspec.to_builtins(found.metadata), spec=decode(found.spec, Any))
    return document


def belongs_to(found: Object, driver: str, node: str) -> bool:
    """Whether a slice is that driver's on that node. Raises ``ValueError``."""
    spec = decode(found.spec, _SliceSpec)
    return (spec.driver, spec.node) == (driver, node)


def _room_for(*parts: msgspec.Raw, patience: float) -> _Parsed:
    """An empty document for what is still to be parsed. Raises ``ValueError`` if that is too much."""
    texts = [bytes(each) for each in parts]
    size, values = sum(map(len, texts)), sum(text.count(mark) for text in texts for mark in (b",", b"[", b"{"))
    if size > LARGEST_PART or values > MOST_PARTS:
        raise ValueError(f"the object is larger than any that is valid: {size} bytes, {values} values")
    document = _Parsed()
    if size > SMALL_PART or values > FEW_PARTS:
        if not _places.acquire(timeout=max(0.0, patience)):
            raise ValueError(f"{MOST_LARGE} other large objects are being read")
        weakref.finalize(document, _places.release).atexit = False
    return document
