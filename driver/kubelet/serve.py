"""The plugin's two sockets in the kubelet's folders: bound in order, and removed at the end."""

import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from driver.conditions import Conditions
from driver.kubelet.folders import Folders
from driver.kubelet.health import MOST_STREAMS, Health, Named
from driver.kubelet.registration import Registration
from driver.kubelet.service import DRAService, Prepares
from driver.names import DRIVER
from models import BadInputError

if TYPE_CHECKING:
    from driver.kubelet.handlers import Handler

log = logging.getLogger(__name__)

LONGEST_PATH = 107
"""Bytes that a unix socket's address holds (``sun_path``, less the closing zero)."""

CALLS = 64
"""That are answered at the same time; as many again may wait."""

OPTIONS = (("grpc.max_receive_message_length", 2**20), ("grpc.so_reuseport", 0))

FAREWELL = 5.0
"""Seconds in which calls under way may end."""

_POD = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SOCKETS = re.compile(rf"dra(-{_POD})?\.sock|{re.escape(DRIVER)}(-{_POD})?-reg\.sock")
"""Of any pod of the driver, in either folder."""


class KubeletServer:
    """Serves the kubelet from ``start`` to ``stop``. Only who holds the node's lock may start it.

    ``pool``: the name of the pool that the devices are published in, which is the node's.
    """

    def __init__(
        self, preparer: Prepares, conditions: Conditions, devices: Iterable[Named], pool: str, folders: Folders
    ) -> None:
        self._folders = folders
        self._service, self._health = DRAService(preparer), Health(devices, pool, conditions)
        self.registration = Registration(str(folders.socket))
        self._servers: dict[Path, grpc.Server] = {}

    def start(self) -> None:
        """Bind the plugin's socket, then the one by which the kubelet finds it.

        Raises ``BadInputError`` where that cannot be; then nothing is bound.
        """
        try:
            _prepare(self._folders)
            handlers = [*self._service.handlers(), *self._health.handlers()]
            self._serve(self._folders.socket, handlers, CALLS + MOST_STREAMS)
            self._serve(self._folders.registration, self.registration.handlers(), 2)
        except BadInputError:
            self.stop()
            raise

    def missing(self) -> list[str]:
        """Sockets that somebody has removed: the kubelet cannot find us, and only a new start makes them again."""
        return [path.name for path in tuple(self._servers) if not path.is_socket()]

    def stop(self) -> None:
        """Take no more calls, let those under way end, remove the sockets."""
        self._health.close()
        for path, server in reversed(self._servers.items()):
            server.stop(FAREWELL).wait()
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._servers.clear()
        self._service.close()

    def _serve(self, path: Path, handlers: "list[Handler]", threads: int) -> None:
        server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix=path.stem),
            handlers=handlers,
            options=OPTIONS,
            maximum_concurrent_rpcs=2 * threads,
        )
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise BadInputError(f"the socket cannot be bound: {error}", file=str(path)) from None
        server.start()
        self._servers[path] = server
        log.info("serving at %s", path)


def _prepare(folders: Folders) -> None:
    """Make the folders, and clear away what drivers that were killed have left in them."""
    for path in (folders.socket, folders.registration):
        if len(bytes(path)) > LONGEST_PATH:
            reason = f"the socket's path has {len(bytes(path))} bytes, and {LONGEST_PATH} are possible"
            raise BadInputError(f"{reason}; choose a shorter folder", place="kubeletRootDir", file=str(path))
    try:
        for folder in (folders.plugin, folders.registry):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            for path in folder.iterdir():
                if _SOCKETS.fullmatch(path.name) and path.is_socket():
                    path.unlink(missing_ok=True)
    except OSError as error:
        reason = f"cannot be used for sockets: {error.strerror}"
        raise BadInputError(reason, file=str(error.filename or folders.root)) from None
