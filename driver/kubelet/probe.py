"""Asks our own sockets as a kubelet would: over a new connection, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import Message

from driver.protos import dra_pb2 as dra
from driver.protos import registration_pb2 as registration

DEADLINE = 5.0
"""Seconds. An idle driver answers in some milliseconds, on a node without a CPU to spare in some hundred."""

GET_INFO = "/pluginregistration.Registration/GetInfo"
PREPARE_NOTHING = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


async def deaf(registry: Path, claims: Path) -> list[Path]:
    """Those of the two sockets at which nobody answers."""
    asked: Iterable[tuple[Path, str, Message]] = (
        (registry, GET_INFO, registration.InfoRequest()),
        (claims, PREPARE_NOTHING, dra.NodePrepareResourcesRequest()),
    )
    answers = await asyncio.gather(*(_answers(*each) for each in asked))
    return [path for (path, _, _), answered in zip(asked, answers, strict=True) if not answered]


async def _answers(path: Path, method: str, request: Message) -> bool:
    async with grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS) as channel:
        try:
            call: Callable[..., Awaitable[bytes]] = channel.unary_unary(method)
            await call(request.SerializeToString(), timeout=DEADLINE)
        except grpc.RpcError:
            return False
    return True
