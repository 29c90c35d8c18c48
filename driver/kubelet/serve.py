"""The plugin's two sockets in the kubelet's folders: bound in order, watched, and removed at the end."""

import logging
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from driver.conditions import Conditions
from driver.kubelet.folders import Folders
from driver.kubelet.health import Health, Named
from driver.kubelet.probe import DEADLINE, deaf
from driver.kubelet.registration import Registration
from driver.kubelet.service import DRAService, Prepares
from driver.kubelet.serving import DeafError, Door, Serving
from driver.names import DRIVER
from models import BadInputError

log = logging.getLogger(__name__)

LONGEST_PATH = 107
"""Bytes that a unix socket's address holds (``sun_path``, less the closing zero)."""

FAREWELL = 1.5
"""Seconds in which calls under way may end."""

PERIOD, LATE = 5.0, 60.0
"""Seconds between two questions to our own sockets, and without any after which nobody seems to ask."""

TRIES = 2
"""Questions in a row without an answer after which the servers are made anew. One may be the node's fault."""

_POD = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SOCKETS = re.compile(rf"dra(-{_POD})?\.sock|{re.escape(DRIVER)}(-{_POD})?-reg\.sock")
"""Of any pod of the driver, in either folder."""


class KubeletServer:
    """Serves the kubelet from ``start`` to ``stop``. Only who holds the node's lock may start it.

    A thread asks both sockets as a kubelet would, and makes the servers anew when one is deaf or removed.
    ``pool``: the name of the pool that the devices are published in, which is the node's.
    """

    def __init__(
        self, desk: Prepares, conditions: Conditions, devices: Iterable[Named], pool: str, folders: Folders
    ) -> None:
        self._folders = folders
        self._service, self._health = DRAService(desk), Health(devices, pool, conditions)
        self.registration = Registration(str(folders.socket))
        self._serving = Serving()
        self._silent: list[Path] = []
        self._failures, self._asked = 0, time.monotonic()
        self._changing, self._stopping = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kubelet-watch", daemon=True)

    def start(self) -> None:
        """Bind the plugin's socket, then the one by which the kubelet finds it.

        Raises ``BadInputError`` where that cannot be; then nothing is bound.
        """
        try:
            _prepare(self._folders)
            self._serving.start()
            self._serving.open(self._doors())
        except BadInputError:
            self.stop()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Take no more calls, let those under way end, remove the sockets."""
        self._stopping.set()
        with self._changing:
            self._health.close()
            self._serving.close(FAREWELL)
            self._serving.stop()

    def deaf(self) -> list[str]:
        """Sockets, by name, that do not answer though they were made anew; or who should ask them."""
        if time.monotonic() - self._asked > LATE:
            return [self._thread.name]
        return [path.name for path in self._silent] if self._failures > TRIES else []

    def look(self) -> None:
        """Ask the sockets, and make them anew if they have been deaf for long enough."""
        self._silent = self._ask()
        self._asked = time.monotonic()
        self._failures = self._failures + 1 if self._silent else 0
        if self._failures >= TRIES or not all(path.is_socket() for path in self._silent):
            names = ", ".join(path.name for path in self._silent)
            log.error("nobody answers at %s, though we serve there: the servers are made anew", names)
            self._make_anew()

    def _watch(self) -> None:
        while not self._stopping.wait(PERIOD):
            try:
                self.look()
            except (BadInputError, DeafError, OSError, RuntimeError) as error:
                log.error("the kubelet's sockets cannot be made anew: %s; it is tried again", error)

    def _ask(self) -> list[Path]:
        registry, claims = self._folders.registration, self._folders.socket
        try:
            return self._serving.do(deaf(registry, claims), 2 * DEADLINE)
        except DeafError:
            return [registry, claims]

    def _make_anew(self) -> None:
        """In another event loop if the present one hangs, which is then left alone."""
        with self._changing:
            if self._stopping.is_set():
                return
            former, alive = self._serving, self._serving.alive
            if not alive:
                self._serving = Serving()
                self._serving.start()
            former.close(0.0)
            self._serving.open(self._doors())

    def _doors(self) -> list[Door]:
        claims = [*self._service.handlers(), *self._health.handlers()]
        return [
            Door(self._folders.socket, claims),
            Door(self._folders.registration, self.registration.handlers()),
        ]


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
