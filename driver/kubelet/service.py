"""The DRA service that the kubelet calls, v1 and v1beta1: claims in, devices or an error for each of them out."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import grpc

from driver.errors import RefusedError
from driver.kubelet.handlers import service, unary
from driver.ledger.entry import Entry, Grant
from driver.logs import about
from driver.metadata import cdi_ids
from driver.names import base, cdi_id, is_uid
from driver.ports import ClaimRef
from driver.protos import dra_pb2 as dra

if TYPE_CHECKING:
    from driver.kubelet.handlers import Context, Handler

log = logging.getLogger(__name__)

Version = Literal["v1", "v1beta1"]
VERSIONS: tuple[Version, ...] = ("v1", "v1beta1")
Reply = TypeVar("Reply", dra.NodePrepareResourceResponse, dra.NodeUnprepareResourceResponse)

MOST_CALLS, MOST_CLAIMS = 128, 1024
"""At once, and in one call. A kubelet makes a call for each pod that starts, with at most a few dozen claims."""

LONGEST_ERROR = 4000

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL, re.ASCII)
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.ASCII)


class Prepares(Protocol):
    """``driver.desk.Desk``. Who hangs up cancels the coroutine."""

    async def prepare(self, ref: ClaimRef) -> Entry:
        """The claim's CPUs and grants. Raises ``RefusedError``."""

    async def unprepare(self, ref: ClaimRef) -> None:
        """Free them. Raises ``RefusedError``."""


class DRAService:
    """Answers NodePrepareResources and NodeUnprepareResources.

    Each claim succeeds or fails for itself; a call fails only if it is none.
    """

    def __init__(self, desk: Prepares) -> None:
        self._desk, self._calls = desk, 0

    def handlers(self) -> "list[Handler]":
        """One per version."""
        return [self._handler(version) for version in VERSIONS]

    async def prepare(
        self, version: Version, request: dra.NodePrepareResourcesRequest, context: "Context"
    ) -> dra.NodePrepareResourcesResponse:
        """Prepare all claims of the call."""

        async def one(ref: ClaimRef) -> dra.NodePrepareResourceResponse:
            entry = await self._desk.prepare(ref)
            devices = [_device(entry, grant, version) for grant in entry.grants]
            return dra.NodePrepareResourceResponse(devices=devices)

        replies = await self._each(request.claims, context, one, dra.NodePrepareResourceResponse)
        return dra.NodePrepareResourcesResponse(claims=replies)

    async def unprepare(
        self, request: dra.NodeUnprepareResourcesRequest, context: "Context"
    ) -> dra.NodeUnprepareResourcesResponse:
        """Unprepare all claims of the call."""

        async def one(ref: ClaimRef) -> dra.NodeUnprepareResourceResponse:
            await self._desk.unprepare(ref)
            return dra.NodeUnprepareResourceResponse()

        replies = await self._each(request.claims, context, one, dra.NodeUnprepareResourceResponse)
        return dra.NodeUnprepareResourcesResponse(claims=replies)

    def _handler(self, version: Version) -> "Handler":
        prepare = partial(self.prepare, version)
        methods = {
            "NodePrepareResources": unary(
                prepare, dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse
            ),
            "NodeUnprepareResources": unary(
                self.unprepare, dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse
            ),
        }
        return service(f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin", methods)

    async def _each(
        self,
        claims: Iterable[dra.Claim],
        context: "Context",
        one: Callable[[ClaimRef], Awaitable[Reply]],
        reply: type[Reply],
    ) -> dict[str, Reply]:
        """The reply for each uid that was asked for; all claims at once."""
        refs = {each.uid: ClaimRef(each.uid, each.namespace, each.name) for each in claims}
        if len(refs) > MOST_CLAIMS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"more than {MOST_CLAIMS} claims in one call")
        if self._calls >= MOST_CALLS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MOST_CALLS} calls at once")
        self._calls += 1
        try:
            replies = await asyncio.gather(*(_guarded(ref, one, reply) for ref in refs.values()))
        finally:
            self._calls -= 1
        return dict(zip(refs, replies, strict=True))


async def _guarded(ref: ClaimRef, one: Callable[[ClaimRef], Awaitable[Reply]], reply: type[Reply]) -> Reply:
    """The claim's own reply, whatever goes wrong with it."""
    if wrong := misnamed(ref):
        return reply(error=f"BadClaim: {wrong}")
    with about(ref):
        try:
            return await one(ref)
        except RefusedError as error:
            return reply(error=str(error)[:LONGEST_ERROR])
        except Exception:
            log.exception("a defect")
            return reply(error="Defect: see the log of the driver")


def misnamed(ref: ClaimRef) -> str | None:
    """Why these cannot be the names of a claim. They become parts of paths and URLs."""
    if not is_uid(ref.uid):
        return f"{ref.uid[:80]!r} is no uid"
    if not _NAMESPACE.fullmatch(ref.namespace):
        return f"{ref.namespace[:80]!r} is no namespace"
    if not _NAME.fullmatch(ref.name):
        return f"{ref.name[:80]!r} is no name of a claim"
    return None


def _device(entry: Entry, grant: Grant, version: Version) -> dra.Device:
    device = dra.Device(
        request_names=[base(grant.request)],
        pool_name=grant.pool,
        device_name=grant.device,
        cdi_device_ids=[cdi_id(entry.uid), *cdi_ids(entry, grant)],
    )
    if version == "v1" and grant.share_id is not None:
        device.share_id = grant.share_id
    return device
