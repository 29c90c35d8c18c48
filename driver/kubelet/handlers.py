"""gRPC handlers from messages and coroutines, without generated code."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

if TYPE_CHECKING:
    Handler = grpc.GenericRpcHandler
    Method = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


def unary(
    function: "Callable[[Asked, Context], Awaitable[Answered]]", asked: type[Asked], answered: type[Answered]
) -> "Method":
    """A method with one message in and one out."""
    behaviour: Any = function
    return grpc.unary_unary_rpc_method_handler(behaviour, asked.FromString, answered.SerializeToString)


def stream(
    function: "Callable[[Asked, Context], AsyncIterator[Answered]]", asked: type[Asked], answered: type[Answered]
) -> "Method":
    """A method with one message in and many out."""
    behaviour: Any = function
    return grpc.unary_stream_rpc_method_handler(behaviour, asked.FromString, answered.SerializeToString)


def service(name: str, methods: Mapping[str, "Method"]) -> "Handler":
    """A service by its full name, with its methods by theirs."""
    return grpc.method_handlers_generic_handler(name, dict(methods))
