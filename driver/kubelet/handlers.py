"""gRPC handlers from messages and functions, without generated code."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

if TYPE_CHECKING:
    Handler = grpc.GenericRpcHandler
    Method = grpc.RpcMethodHandler[Any, Any]

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


def unary(
    function: Callable[[Asked, grpc.ServicerContext], Answered], asked: type[Asked], answered: type[Answered]
) -> "Method":
    """A method with one message in and one out."""
    return grpc.unary_unary_rpc_method_handler(function, asked.FromString, answered.SerializeToString)


def stream(
    function: Callable[[Asked, grpc.ServicerContext], Iterator[Answered]],
    asked: type[Asked],
    answered: type[Answered],
) -> "Method":
    """A method with one message in and many out."""
    return grpc.unary_stream_rpc_method_handler(function, asked.FromString, answered.SerializeToString)


def service(name: str, methods: Mapping[str, "Method"]) -> "Handler":
    """A service by its full name, with its methods by theirs."""
    return grpc.method_handlers_generic_handler(name, dict(methods))
