"""What both of the kubelet's sources say together."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from driver.foreign.checkpoint import given_then, read_checkpoint
from driver.foreign.podresources import given_now
from driver.ledger.entry import Snapshot
from driver.ledger.foreign import ANY, Foreign
from models import CpusatError, format_cpuset
from topologies.readers.kubelet import NONE, CPUManagerState

MOST_NAMED = 5
"""Containers that a message names."""

Source = TypeVar("Source")


class UnreadableError(CpusatError):
    """Neither of the sources can be read. The message says why not, and what to do."""


def look(socket: Path, checkpoint: Path) -> Foreign:
    """What the kubelet's CPU manager has given to containers. Raises ``UnreadableError``.

    A CPU of the checkpoint's default set is everybody's, whatever else is said. The API is asked first: what it
    still names and the checkpoint has back already has been given up in between. A CPU that is being given away
    leaves the default set before it is a container's (``staticPolicy.Allocate`` of the kubelet).
    """
    given, why_not = _try(lambda: given_now(socket))
    state, why_neither = _try(lambda: read_checkpoint(checkpoint))
    if given is None and state is None:
        raise UnreadableError(
            f"neither the kubelet's pod-resources API ({why_not}) nor its checkpoint ({why_neither}) can be read, "
            "so nobody knows which CPUs the kubelet has given to containers; mount both for the driver, as "
            "deploy/base/daemonset.yaml does"
        )
    return _together(given or {}, state or CPUManagerState(NONE))


def _try(read: Callable[[], Source]) -> tuple[Source | None, str]:
    try:
        return read(), ""
    except OSError as error:
        return None, str(error)


def _together(given: dict[str, frozenset[int]], state: CPUManagerState) -> Foreign:
    """The API names containers by their pods' names, so its word comes last where both have one."""
    shared = state.default or frozenset()
    cpus = {name: cpus - shared for name, cpus in (given_then(state) | given).items() if cpus - shared}
    return Foreign(cpus, static=state.policy != NONE)


def complaint(snapshot: Snapshot) -> str | None:
    """Why no CPUs can be promised beside the kubelet's CPU manager, and the way out; ``None`` if they can."""
    foreign, way_out = snapshot.foreign, "drain the node and let its kubelet run with cpuManagerPolicy: none"
    if foreign.cpus:
        return f"the kubelet's CPU manager has given {_named(foreign)}{_clash(snapshot)}; {way_out}"
    if foreign.static:
        return f"the kubelet's cpuManagerPolicy is static: it gives CPUs away whatever claims hold; {way_out}"
    return None


def _named(foreign: Foreign) -> str:
    """Containers with their CPUs; one that both sources name once, by its pod's name."""
    names = {cpus: _title(name) for name, cpus in foreign.cpus.items()}
    told = [f"CPUs {format_cpuset(cpus)} to {title}" for cpus, title in names.items()]
    more = [f"and others to {len(told) - MOST_NAMED} more"] if len(told) > MOST_NAMED else []
    return ", ".join(sorted(told)[:MOST_NAMED] + more)


def _title(name: str) -> str:
    pod, _, container = name.rpartition("/")
    return f"containers of pod {pod}" if container == ANY else f"container {container} of pod {pod}"


def _clash(snapshot: Snapshot) -> str:
    """Said of CPUs that claims hold, too: the claims keep them."""
    clash = snapshot.foreign.given & snapshot.claimed
    if not clash:
        return ""
    holders = [
        f"{entry.namespace}/{entry.name}" if entry.name else entry.uid
        for entry in snapshot.entries.values()
        if entry.cpuset & clash
    ]
    claims = ", ".join(sorted(holders)[:MOST_NAMED])
    return f"; of these, CPUs {format_cpuset(clash)} are held by claim {claims}, which keeps them"
