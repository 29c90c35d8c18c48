"""HTTP requests to the API server, where and as whom a kubeconfig or our service account says (lightkube)."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
from lightkube import KubeConfig
from lightkube.config import client_adapter
from lightkube.core.exceptions import ConfigError

from driver.cluster.exchanges import Exchanges
from driver.cluster.objects import Change, Status, decode
from driver.cluster.transport import SLOWEST, TIMEOUT, BoundedTransport
from models import BadInputError
from topologies.readers.text import read_file
from topologies.readers.yaml_text import parse_yaml

T = TypeVar("T")
Query = Mapping[str, str | int]

JSON = "application/json"


class AnswerError(Exception):
    """The server says that it does not do what it was asked for. ``code``: its HTTP status; ``reason``: of its own
    ``Status``, empty if somebody else has answered."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(message)


class Client:
    """Sends requests, and decodes what is needed of the answers.

    Methods raise httpx2's errors, ``AnswerError``, ``LateError``, ``ConfigError`` and ``OSError``; and
    ``ValueError`` or ``RecursionError`` where an answer is none.
    """

    def __init__(self, http: httpx2.Client, transport: BoundedTransport) -> None:
        self._http, self._transport = http, transport
        self._exchanges = Exchanges()

    @classmethod
    def connect(cls, kubeconfig: Path | None) -> "Client":
        """With a kubeconfig file, else as the service account of our pod. Raises what reading it may raise."""
        found = _read(kubeconfig) if kubeconfig else KubeConfig.from_service_account()
        config: Any = found.get()
        transport = BoundedTransport(
            client_adapter.verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
        )
        how = client_adapter.ConnectionParams(
            timeout=httpx2.Timeout(TIMEOUT), trust_env=False, transport=transport
        )
        return cls(client_adapter.Client(config, how), transport)

    def close(self) -> None:
        """Wake all who wait for the server, and ask it nothing from now on."""
        self._exchanges.close()
        self._transport.cut()

    def end_watches(self) -> None:
        """Wake those who watch, in their threads."""
        self._transport.end_watches()

    def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Query | None = None,
        body: object = None,
        form: str = JSON,
        patience: float = SLOWEST,
    ) -> T:
        """What is needed of the answer, as ``kind`` says. ``patience``: seconds for all of it."""
        content = None if body is None else msgspec.json.encode(body)
        headers = None if body is None else {"Content-Type": form}

        def exchange(left: float) -> T:
            with self._transport.within(left):
                response = self._http.request(method, path, params=query, content=content, headers=headers)
            return _decoded(response, kind)

        return self._exchanges.run(exchange, patience)

    def watch(self, path: str, query: Query) -> Iterator[Change]:
        """What the server tells until it ends the watch. In the caller's own thread: it may take minutes."""
        request = self._http.build_request("GET", path, params={**query, "watch": "true"})
        with closing(self._http.send(request, stream=True)) as response:
            if not response.is_success:
                raise _refusal(response)
            for line in _lines(response.iter_bytes()):
                change = decode(line, Change)
                if change.type == "ERROR":
                    status = decode(change.object, Status)
                    raise AnswerError(status.code, status.reason, status.message)
                yield change


def _read(kubeconfig: Path) -> KubeConfig:
    """A kubeconfig file, read within bounds."""
    file = kubeconfig.expanduser()
    if not file.is_file():
        raise ConfigError("there is no such file")
    try:
        return KubeConfig.from_dict(parse_yaml(read_file(file)), fname=file)
    except BadInputError as error:
        raise ConfigError(str(BadInputError(error.reason, place=error.place))) from None


def _decoded(response: httpx2.Response, kind: type[T]) -> T:
    if not response.is_success:
        raise _refusal(response)
    return decode(response.content, kind)


def _refusal(response: httpx2.Response) -> AnswerError:
    """Why the server does not do it. Where the answer does not tell, its status says more."""
    code = response.status_code
    try:
        status = decode(response.content, Status)
    except (ValueError, RecursionError):
        status = Status()
    return AnswerError(code, status.reason, status.message or f"{code} {response.reason_phrase}")


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = bytearray()
    for part in parts:
        rest += part
        if b"\n" in part:
            *lines, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            yield from filter(None, lines)
    if rest:
        raise ValueError("the watch ends within a line")
