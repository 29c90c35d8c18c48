"""The driver put together, and the order in which it comes up and goes down.

Warm up; wait for the node's lock; read the ledger; put CDI files right; ask the kubelet which CPUs it has given
away itself; join the runtime; then serve the kubelet. So whoever asks us anything finds the ledger read and every
mask being put right.
"""

import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from driver.cdi import CDI
from driver.claims.view import ClaimView
from driver.claims.wish import wish
from driver.cluster.api import Api
from driver.cluster.events import Events
from driver.cluster.release import Releaser
from driver.cluster.slices import Publisher
from driver.cluster.status import StatusWriter
from driver.conditions import Conditions
from driver.config import Config
from driver.desk import LONGEST, Desk
from driver.devices.devices import DeviceMap, devices_of
from driver.devices.offer import Listing, Offer
from driver.devices.slices import NodeRef, slices
from driver.foreign.look import look
from driver.foreign.watch import ForeignWatch
from driver.gauges import Gauges
from driver.host import POD_UID, Host, former_names, keep_names
from driver.http import Endpoints
from driver.kubelet.folders import Folders
from driver.kubelet.lock import NodeLock
from driver.kubelet.serve import KubeletServer
from driver.ledger.book import Ledger
from driver.ledger.files import Files
from driver.logs import drain
from driver.metrics import Metrics
from driver.misfits import misfits
from driver.node_name import remember_name
from driver.nri.glance import ReadMask
from driver.nri.messages import Settings
from driver.nri.remote import RemoteRuntime
from driver.nri.runtime import NRIRuntime
from driver.ports import ClaimRef, Document, Runtime
from driver.prepare import Preparer, Show, show_nothing
from driver.recover import recover, repair
from driver.refresh import Refresher
from driver.solving.client import WorkerSolver
from driver.watch import Check, Watch, reserved_offline, topology_changed, unwritable
from models import BadInputError

log = logging.getLogger(__name__)

JOINING = 10.0
"""Seconds to wait for the runtime before the kubelet is served without it; claims are then refused."""


THREADS = ("ledger", "foreign", "slices", "events", "status", "refresh", "release", "watch", "kubelet-watch")
"""That live as long as the driver serves."""

ENDING = 4.0
"""Seconds from the signal to the end of the process, whatever hangs: a disk, the API server, the runtime. A kill
loses nothing, and the node's next driver waits for our lock."""

ASKING = 1.0
"""Seconds of these in which claims at work may still be read: one that is refused now is tried again late."""

DESCRIPTORS = 65_536
"""Open files that the driver allows itself where the system does: anybody may connect to its sockets."""

FLUSHING = 0.5
"""Seconds that the last lines of the log then have to be written."""


class Part(Protocol):
    """Something that runs."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class Driver:
    """All parts, made and started in order by ``start``, which may wait for the lock; stopped in reverse.

    ``root``: below which the machine's ``/sys`` is read. ``kernel``: reads the masks of containers, for tests; the
    container runtime is then answered by this process, and else by one of its own.
    """

    longest_wait = LONGEST
    """Seconds; see there. Tests have less of them."""

    def __init__(self, config: Config, root: Path = Path("/"), kernel: ReadMask | None = None) -> None:
        self.config, self.stopped = config, threading.Event()
        self._kernel = kernel
        self.host = Host.read(config, root)
        for misfit in misfits(config, self.host.topology, self.host.cpus):
            log.warning("%s", misfit)
        self.folders = Folders(config.kubelet_root_dir, os.environ.get(POD_UID, ""))
        self.conditions, self.metrics = Conditions(), Metrics()
        self.api = Api.connect(config.kubeconfig)
        self.cdi = CDI(config.cdi_dir, metadata=self.folders.metadata)
        self._lock = NodeLock(self.folders.plugin)
        self._running: list[Part] = []
        self._unready: dict[Any, str] = {"Starting": "coming up"}
        self._owed: list[Callable[[], None]] = []
        self._remote = None if kernel else self._make_remote()
        self._runtime: NRIRuntime | RemoteRuntime | None = None
        self._waits = False

    def start(self) -> bool:
        """Come up. ``False`` if told to stop while waiting for the lock. Raises ``BadInputError``."""
        self._run(Endpoints(self.config.bind_address, self.metrics.registry, self._dead, self._not_ready))
        solver = WorkerSolver(self.host.topology, self.config.solver_time_limit, self.metrics)
        self._run(solver)
        if self._remote:
            self._run(self._remote)
        self._waits = True
        if not self._lock.acquire(self.stopped):
            return False
        self._waits = False
        self.ledger = ledger = self._read_ledger()
        devices = self._devices(ledger)
        refresher = Refresher(lambda uid: preparer.renew(uid))
        self._run(self._watch_kubelet(ledger))
        runtime = self._join_runtime(ledger, refresher)
        events = Events(self.api, self.host.name)
        self._run(events)
        status = StatusWriter(self.api)
        self._run(status)
        preparer = self._preparer(ledger, devices, solver, runtime, events, status, refresher)
        self._run(refresher)
        self._desk = Desk(preparer, self.longest_wait)
        self._run(self._desk)
        offer = Offer(devices.devices, self.host.topology, self.host.name, bool(self.config.full_cores))
        listed = Listing(offer, lambda: ledger.snapshot)
        self._kubelet = KubeletServer(self._desk, self.conditions, listed, self.host.name, self.folders)
        self._run(self._kubelet)
        self._run(self._publisher(offer, ledger))
        self._run(Releaser(self.api, ledger, runtime, self.host.name, preparer.release_if))
        self._unready.clear()
        log.info(
            "serving node %s: %d devices, %d claims",
            self.host.name,
            len(list(listed)),
            len(ledger.snapshot.entries),
        )
        return True

    def stop(self) -> None:
        """Go down. Claims keep their CPUs, and containers their masks."""
        self.stopped.set()
        with closing(self.api), self._asking_no_longer_than(ASKING):
            for part in reversed(self._running):
                part.stop()
        self._lock.release()

    @contextmanager
    def _asking_no_longer_than(self, seconds: float) -> Iterator[None]:
        """Whoever still waits for the API server after so many seconds waits no longer."""
        timer = threading.Timer(seconds, self.api.close)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # There are no threads.
            self.api.close()
        try:
            yield
        finally:
            timer.cancel()

    def _run(self, part: Part) -> None:
        self._running.append(part)
        part.start()

    def _read_ledger(self) -> Ledger:
        ledger = Ledger.open(self.host.cpus, Files(self.folders.ledger))
        self._running.append(_Closing(ledger.close))
        self._owed.append(lambda: recover(ledger, self.cdi))
        self._owed.append(lambda: remember_name(self.folders.node_name, self.host.name))
        self.watch = Watch(self._checks(ledger), self.conditions)
        self.watch.look()
        if not (ledger.snapshot.held or ledger.unsure()):
            self.host.check()
            if self.conditions.current():
                raise BadInputError(str(self.conditions))
        self.metrics.registry.register(Gauges(self.host.topology, lambda: ledger.snapshot, self.conditions))
        return ledger

    def _checks(self, ledger: Ledger) -> Iterator[Check]:
        yield "ReservedOffline", lambda: reserved_offline(self.config.reserved_cpus, self.host.online)
        yield "TopologyChanged", lambda: self._topology(ledger)
        yield "LedgerQuarantine", ledger.unsure
        yield "FoldersUnwritable", lambda: self._folders(ledger)

    def _topology(self, ledger: Ledger) -> str | None:
        """Why the machine is another one now. Masks do without CPUs that are down from then on."""
        before, now = self.host.cpus.online, self.host.online()
        ledger.set_offline(before - now)
        return topology_changed(before, now, ledger.snapshot)

    def _folders(self, ledger: Ledger) -> str | None:
        """Why a folder cannot be used. What a start owes to one is done as soon as that is possible: until then
        nobody may be given CPUs, for they may be those of claims that are still to be taken over."""
        try:
            while self._owed:
                self._owed[0]()
                self._owed.pop(0)
            if why := unwritable([self.folders.ledger, self.cdi.folder]):
                return why
            repair(ledger, self.cdi, self._is_named)
        except OSError as error:
            return f"{error.filename or self.cdi.folder}: {error.strerror or error}; mend or mount it"
        return None

    def _is_named(self, uid: str) -> bool:
        return self._runtime is None or self._runtime.names(uid)

    def _devices(self, ledger: Ledger) -> DeviceMap:
        """The devices; single CPUs keep the names under which live claims know them, published now or not."""
        file = self.folders.plugin / "devices.json"
        former = former_names(file, keep=bool(ledger.snapshot.entries))
        devices = devices_of(self.config, self.host.topology, self.host.cpus, former)
        single = self.config.cpu_device_mode == "individual"
        names = {each.name: min(each.cpus) for each in devices} if single else {}
        self._owed.append(lambda: keep_names(file, former | names))
        self.watch.look()
        self._run(self.watch)
        return devices

    def _watch_kubelet(self, ledger: Ledger) -> ForeignWatch:
        """What its CPU manager has given away is known before the runtime asks for the first masks."""
        self.foreign = ForeignWatch(
            lambda: look(self.folders.pod_resources, self.folders.cpu_manager_state), ledger, self.conditions
        )
        return self.foreign

    def _make_remote(self) -> RemoteRuntime:
        """It is started early, so that it can join the runtime as soon as the node's former driver has left it."""
        settings = Settings(
            nri_socket=self.config.nri_socket,
            cgroup_root=self.config.cgroup_root,
            log_level=logging.getLogger().getEffectiveLevel(),
        )
        return RemoteRuntime(settings, self.conditions, self.metrics)

    def _join_runtime(self, ledger: Ledger, refresher: Refresher) -> NRIRuntime | RemoteRuntime:
        runtime = self._runtime = self._joined_remote(ledger, refresher) or self._joined_here(ledger, refresher)
        ledger.listen(runtime.changed)
        runtime.changed()
        runtime.wait(JOINING)
        return runtime

    def _joined_remote(self, ledger: Ledger, refresher: Refresher) -> RemoteRuntime | None:
        if self._remote:
            self._remote.join(lambda: ledger.snapshot, ledger.own, refresher.ask, self.foreign.wake)
            self._running.append(_Closing(self._remote.stop))
        return self._remote

    def _joined_here(self, ledger: Ledger, refresher: Refresher) -> NRIRuntime:
        assert self._kernel
        runtime = NRIRuntime(
            self.config.nri_socket,
            lambda: ledger.snapshot,
            ledger.own,
            self.conditions,
            self.metrics,
            self._kernel,
            refresher.ask,
            suspect=self.foreign.wake,
        )
        self._run(runtime)
        return runtime

    def _preparer(
        self,
        ledger: Ledger,
        devices: DeviceMap,
        solver: WorkerSolver,
        runtime: Runtime,
        events: Events,
        status: StatusWriter,
        refresher: Refresher,
    ) -> Preparer:
        counted = self.config.cpu_device_mode == "grouped"

        def read(document: Document, ref: ClaimRef) -> ClaimView:
            return ClaimView.read(document, ref, counted=counted)

        return Preparer(
            topology=self.host.topology,
            claims=self.api,
            ledger=ledger,
            cdi=self.cdi,
            solver=solver,
            runtime=runtime,
            teller=events,
            observer=self.metrics,
            conditions=self.conditions,
            read=read,
            make_wish=lambda view: wish(view, self.config, devices, self.host.cpus, self.host.name),
            show=self._show(devices),
            reporter=status,
            greedy=WorkerSolver(self.host.topology, 0.0, self.metrics),
            behind=refresher.ask,
        )

    def _show(self, devices: DeviceMap) -> Show:
        if not self.config.device_metadata:
            return show_nothing
        return lambda view: devices.shown(grant.device for grant in view.grants)

    def _publisher(self, offer: Offer, ledger: Ledger) -> Publisher:
        """It publishes what the ledger leaves to be given, and again when anything but claims of the devices
        themselves has changed that."""
        mapped = self.config.publish_node_allocatable_resource_mapping

        def make(node: NodeRef, generation: int) -> list[Document]:
            return slices(offer.now(ledger.snapshot), node, generation, node_allocatable=mapped)

        name, conditions = self.host.name, self.conditions
        publisher = Publisher(self.api, name, make, conditions, lambda: offer.now(ledger.snapshot))
        ledger.listen(publisher.changed)
        return publisher

    def _not_ready(self) -> Mapping[Any, str]:
        """What keeps us from serving. While the node's former driver still serves, we are ready to take over: only
        then does a rolling update end that one."""
        if self._waits:
            return {}
        return {**self._unready, **self.conditions.current()}

    def _dead(self) -> Iterable[str]:
        """Threads and sockets that should be there while we are. Without folders a new start would know nothing of
        claims: then sockets can wait."""
        if self._unready:
            return []
        alive = {thread.name for thread in threading.enumerate()}
        ended = [name for name in THREADS if name not in alive]
        ended += ["nri"] if self._runtime and not self._runtime.alive() else []
        return ended if "FoldersUnwritable" in self.conditions.current() else [*ended, *self._kubelet.deaf()]


class _Closing:
    """Something that has only to be closed."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.stop = close

    def start(self) -> None:
        """Nothing."""


def run(config: Config, root: Path = Path("/")) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``BadInputError`` where the configuration does not fit the node."""
    allow_descriptors()
    driver = Driver(config, root)
    _obey_signals(driver.stopped)
    try:
        if driver.start():
            driver.stopped.wait()
    finally:
        driver.stop()


def allow_descriptors() -> None:
    """Have as many descriptors as we may: connections that somebody leaves open must not use them up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _obey_signals(stopped: threading.Event) -> None:
    """Have SIGTERM and SIGINT set the event, and end the process some seconds later if nothing else does.

    Python runs handlers in the first thread alone, which may be waiting for something that does not come; what the
    kernel gives to any thread goes through a pipe to a thread of ours (``signal.set_wakeup_fd``).
    """
    signalled, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    threading.Thread(target=_end, args=(signalled, stopped), name="signals", daemon=True).start()


def _end(signalled: int, stopped: threading.Event) -> None:
    os.read(signalled, 1)
    stopped.set()
    time.sleep(ENDING)
    log.warning("the driver has not come to its end within %.0f s, and ends as if it were killed", ENDING)
    drain(FLUSHING)
    os._exit(0)
