"""The kubelet's pod-resources API (``v1.PodResourcesLister``), as far as CPUs are concerned.

It lists the CPUs that containers have for themselves from the CPU manager; containers of the shared pool, and init
containers that end, have none there. What claims give is listed apart.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc

from driver.ledger.foreign import ANY
from driver.protos import podresources_pb2 as podresources
from models.cpuset import MAX_CPU

LIST = "/v1.PodResourcesLister/List"

TIMEOUT = 3.0
"""Seconds for the whole call."""

LARGEST = 16 << 20
"""Bytes of an answer: the kubelet's own bound for its clients."""

OPTIONS = (("grpc.max_receive_message_length", LARGEST), ("grpc.use_local_subchannel_pool", 1))

Given = dict[str, frozenset[int]]
"""CPUs by container, as ``driver.ledger.foreign.Foreign`` names it."""


def given_now(socket: Path) -> Given:
    """What the kubelet says at its socket. Raises ``OSError`` if it does not answer."""
    with grpc.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        call = channel.unary_unary(
            LIST,
            request_serializer=podresources.ListPodResourcesRequest.SerializeToString,
            response_deserializer=podresources.ListPodResourcesResponse.FromString,
        )
        try:
            answer = call(podresources.ListPodResourcesRequest(), timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise OSError(f"{socket}: {_why(error)}") from None
    return {name: cpus for pod in answer.pod_resources for name, cpus in _of(pod)}


def _of(pod: podresources.PodResources) -> Iterator[tuple[str, frozenset[int]]]:
    own = {each.name: _cpus(each.cpu_ids) for each in pod.containers}
    for name, cpus in own.items():
        yield f"{pod.namespace}/{pod.name}/{name}", cpus
    yield f"{pod.namespace}/{pod.name}/{ANY}", _cpus(pod.cpu_ids).difference(*own.values())


def _cpus(numbers: Iterable[int]) -> frozenset[int]:
    return frozenset(number for number in numbers if 0 <= number <= MAX_CPU)


def _why(error: grpc.RpcError) -> str:
    code, details = error.code(), error.details() or ""
    return f"{code.name} {' '.join(details.split())[:200]}".strip()
