"""The container runtime, as the rest of the driver sees it: connected for ever, masks kept as the ledger says."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf.message import DecodeError

from driver.conditions import Conditions
from driver.ledger.entry import Owner, Snapshot
from driver.names import DRIVER
from driver.nri.glance import Glance, ReadMask
from driver.nri.mux import WireError
from driver.nri.plugin import Plugin
from driver.nri.reconcile import Reconciler
from driver.nri.registry import Registry, nobody_looks
from driver.nri.session import INDEX, TURN, relay, session
from driver.nri.static_manager import StaticManager, nobody_asks
from driver.nri.traits import freezes, is_direct
from driver.nri.ttrpc import Connection
from driver.ports import MaskObserver
from driver.protos import nri_pb2 as nri
from models import CpusatError

log = logging.getLogger(__name__)

AWAY_AFTER = 5.0
"""Seconds without the runtime after which new claims are refused."""

FIRST_RETRY, LAST_RETRY = 0.1, 5.0
RELIST_AFTER = 1.0
DIRECT_TIMEOUT = 10.0

PATIENCE = 2.0
"""Seconds in which a change may be carried by replies, where another connection may freeze the node."""


def _nothing() -> None:
    pass


class NRIRuntime:
    """Implements ``driver.ports.Runtime``.

    ``snapshot``: the ledger's, now. ``own``: told which container carries a claim, from a thread of ours.
    ``kernel``: reads masks. ``look``: told the uid of a claim, from a thread of ours, when a container is refused
    because its pod is not among those that the claim is reserved for. It returns at once, and has the ledger
    brought up to date for the next try. ``met``: called when the runtime comes or goes, see ``wait``. ``suspect``:
    called, from a thread of ours, when somebody else names CPUs for a container: the kubelet should be asked which
    it has given. At ``stop`` all masks stay as they are.
    """

    def __init__(
        self,
        path: Path,
        snapshot: Callable[[], Snapshot],
        own: Callable[[str, Owner], None],
        conditions: Conditions,
        observer: MaskObserver,
        kernel: ReadMask,
        look: Callable[[str], None] = nobody_looks,
        met: Callable[[], None] = _nothing,
        suspect: Callable[[], None] = nobody_asks,
    ) -> None:
        self._path, self._conditions, self._kernel, self._met = path, conditions, kernel, met
        self._registry = Registry(snapshot, own, look)
        self._manager = StaticManager(conditions, suspect)
        self._glance = Glance(kernel)
        self._reconciler = Reconciler(self._registry, kernel, observer, self._tell, self._after_round)
        self._stopping, self._here = threading.Event(), threading.Event()
        self._round = threading.Condition()
        self._connection: Connection | None = None
        self._direct: Connection | None = None
        self._away_since, self._why = time.monotonic(), "not connected yet"
        self._thread = threading.Thread(target=self._keep_connected, name="nri", daemon=True)

    def start(self) -> None:
        """Connect, and go on for ever. Returns at once; see ``wait``."""
        self._away_since = time.monotonic()
        self._glance.start()
        self._reconciler.start()
        self._thread.start()

    def stop(self) -> None:
        """Leave the runtime."""
        self._stopping.set()
        self._reconciler.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._glance.stop()

    def alive(self) -> bool:
        """Whether the runtime is answered when it calls, and masks are kept: our threads run, and so does the one
        that answers on the runtime's connection, if there is one. True also while the runtime is away. Does not
        return while the lock is held that every handler needs."""
        connection = self._connection
        self._registry.changed()
        threads = self._thread.is_alive() and self._reconciler.alive() and self._glance.alive()
        return threads and (connection is None or connection.alive())

    def wait(self, timeout: float) -> bool:
        """Wait for the runtime's list, at most so many seconds. Whether it has come."""
        return self._here.wait(timeout)

    def changed(self) -> None:
        """The ledger has a new snapshot."""
        self._reconciler.changed()

    def knows(self, timeout: float) -> bool:
        """Handlers read the ledger itself."""
        return True

    def settle(self, timeout: float) -> bool:
        """Wait, at most so many seconds, until nobody is in the way of a claim whom the creation of its container
        would not move out of it. Whether that is so.

        Mostly it is so at once: the reply to a creation tells all others, and the kernel shows before the start
        whether they have gone. It does not move a container that is about to start, one that was told before in
        vain, and one whose mask cannot be read.
        """
        self._reconciler.answered()
        with self._round:
            return self._round.wait_for(self._is_settled, timeout)

    def carries(self, uid: str) -> bool:
        """Whether a container that has not stopped carries the claim. Before the first list any may."""
        return self._registry.carries(uid)

    def names(self, uid: str) -> bool:
        """Whether a container that has not stopped names the claim, be it let in or not. Before the first list any
        may."""
        return self._registry.names(uid)

    def _is_settled(self) -> bool:
        return self._here.is_set() and not self._registry.stuck()

    def _after_round(self) -> None:
        self._manager.look()
        with self._round:
            self._round.notify_all()

    def _tell(self, relist: bool) -> bool:
        direct = self._direct
        if not self._here.is_set():
            return False
        if direct is None or relist:
            relay(self._path, self._registry, self._kernel, self._glance, self._stopping)
        else:
            self._tell_directly(direct)
        return True

    def _tell_directly(self, connection: Connection) -> None:
        updates = self._registry.tell_due()
        request = nri.UpdateContainersRequest(update=[each.message(ignore_failure=False) for each in updates])
        try:
            reply = _reply(connection.call("UpdateContainers", request, DIRECT_TIMEOUT))
        except (OSError, CpusatError):
            self._reconciler.relist(RELIST_AFTER)
            raise
        self._registry.applied(updates, {each.container_id for each in reply.failed})

    def _keep_connected(self) -> None:
        retry = FIRST_RETRY
        while not self._stopping.is_set():
            try:
                self._serve()
                retry = FIRST_RETRY
            except (OSError, CpusatError) as error:
                self._why = str(error) or type(error).__name__
                retry = min(2 * retry, LAST_RETRY)
            except Exception as error:
                log.exception("defect while the runtime was served")
                self._why, retry = repr(error), LAST_RETRY
            self._judge()
            self._stopping.wait(retry)

    def _serve(self) -> None:
        plugin = Plugin(self._registry, self._glance, self._manager, self._reconciler.wake, self._reconciler.hurry)
        with session(self._path, DRIVER, INDEX, plugin, self._stopping, self._judge) as connection:
            self._connection = connection
            try:
                self._await_list(plugin, connection)
                while not (connection.ended.wait(0.2) or self._stopping.is_set()):
                    pass
            finally:
                self._leave(connection.why)

    def _await_list(self, plugin: Plugin, connection: Connection) -> None:
        end = time.monotonic() + TURN
        while not (plugin.listing.done.wait(0.1) or connection.ended.is_set() or self._stopping.is_set()):
            self._judge()
            if time.monotonic() > end:
                raise TimeoutError(f"the runtime has sent no list for {TURN:.0f} s")
        if plugin.listing.done.is_set():
            self._come(plugin, connection)

    def _come(self, plugin: Plugin, connection: Connection) -> None:
        log.info("connected to the runtime at %s", self._path)
        self._direct = connection if is_direct(plugin.told) else None
        self._reconciler.patience = PATIENCE if self._direct is None and freezes(plugin.told) else 0.0
        self._here.set()
        self._conditions.clear("NRIAway")
        self._met()
        self._reconciler.relist(RELIST_AFTER)
        self._reconciler.changed()

    def _leave(self, why: str) -> None:
        self._why = why
        if self._here.is_set():
            self._here.clear()
            self._direct, self._away_since = None, time.monotonic()
            self._met()
            if not self._stopping.is_set():
                log.warning("no longer connected to the runtime: %s", why)

    def _judge(self) -> None:
        if not self._here.is_set() and time.monotonic() > self._away_since + AWAY_AFTER:
            self._conditions.set(
                "NRIAway",
                f"the container runtime's NRI at {self._path} does not answer ({self._why}); "
                "check that it runs and that NRI is enabled in its configuration",
            )


def _reply(payload: bytes) -> nri.UpdateContainersResponse:
    try:
        return nri.UpdateContainersResponse.FromString(payload)
    except DecodeError as error:
        raise WireError(f"the runtime's reply cannot be read: {error}") from None
