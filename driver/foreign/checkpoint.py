"""The checkpoint of the kubelet's CPU manager, ``cpu_manager_state``: one file, replaced at each change."""

from pathlib import Path

from driver.durable import read_bounded
from driver.ledger.foreign import ANY
from models import BadInputError
from topologies.readers.kubelet import CPUManagerState, read_state

LARGEST = 8 << 20


def read_checkpoint(file: Path) -> CPUManagerState:
    """What the file says now. It is opened anew each time.

    A container that has this one file mounted goes on seeing the former file after the kubelet has replaced it:
    that says nothing of today. Raises ``OSError``, for that too, and where it is no checkpoint.
    """
    try:
        if file.stat().st_nlink == 0:
            raise OSError(f"{file}: the kubelet has replaced it since it was mounted")
        return read_state(read_bounded(file, LARGEST).decode(), file=str(file))
    except (ValueError, BadInputError) as error:
        raise OSError(f"{file}: {error}") from None


def given_then(state: CPUManagerState) -> dict[str, frozenset[int]]:
    """CPUs by container, as ``driver.ledger.foreign.Foreign`` names it."""
    found = dict(state.containers)
    for uid, cpus in state.pods.items():
        own = (each for name, each in state.containers.items() if name.startswith(f"{uid}/"))
        found[f"{uid}/{ANY}"] = cpus.difference(*own)
    return found
