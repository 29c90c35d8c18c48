"""This node: its name, its machine, and the single CPUs' names that have to outlive a restart."""

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from driver.config import Config
from driver.durable import read_bounded, remove, write_whole
from driver.node import NodeCPUs
from driver.node_name import node_name
from driver.options import Options, in_users_words
from driver.overlay import overlaid
from driver.watch import ONLINE, isolated, online_now
from models import BadInputError, InfeasibleError, Request, Topology, format_cpuset, parse_cpuset
from solver.engine import solve
from topologies.readers.sysfs import read_sysfs

log = logging.getLogger(__name__)

POD_UID = "POD_UID"

PLACES = ("numa_ids", "core_type", "near")
"""Options that name parts of a machine."""

LARGEST = 1 << 22


@dataclass(frozen=True)
class Host:
    """The machine under the configuration.

    ``sysfs``: the machine's own; ``cpus``: as they were when it was read; ``online_overlaid``: CPUs that are up by
    the word of ``sysfsOverlay``, if it says which are.
    """

    name: str
    sysfs: Path
    topology: Topology
    cpus: NodeCPUs
    online_overlaid: frozenset[int] | None = None

    @classmethod
    def read(cls, config: Config, root: Path = Path("/")) -> "Host":
        """This machine, or the one whose ``/sys`` is below the root. Raises ``BadInputError``.

        Reserved CPUs that are not online are left out here; ``driver.watch`` tells of them.
        """
        base = root / "sys"
        with overlaid(config.sysfs_overlay, base) as sysfs:
            machine = read_sysfs(sysfs, name="host")
            topology = machine.model_copy(update={"reserved": config.reserved_cpus & machine.online})
            cpus = NodeCPUs.of(topology, isolated(sysfs), config.min_shared_cpus)
            cpus = replace(cpus, memoryless=memoryless(sysfs, machine))
            online = online_now(sysfs) if sysfs != base and not (sysfs / ONLINE).is_symlink() else None
        if cpus.allocatable == cpus.kept:
            log.warning("no CPUs are published: %d must stay shared (minSharedCPUs)", cpus.min_shared)
        if clash := lacking(config.defaults, topology):
            log.warning("claims without options of their own get no CPUs here: %s", clash)
        return cls(node_name(config), base, topology, cpus, online)

    def check(self) -> None:
        """Raise ``BadInputError`` where there is nothing to give. Claims that live are looked after even so."""
        if not self.cpus.allocatable:
            reserved = format_cpuset(self.cpus.reserved)
            raise BadInputError(f"{reserved} are all CPUs there are; leave some to give", place="reservedCPUs")

    def online(self) -> frozenset[int]:
        """CPUs that are up now, as the kernel says unless the overlay does."""
        return online_now(self.sysfs) if self.online_overlaid is None else self.online_overlaid


def lacking(defaults: Options, machine: Topology) -> str:
    """Why not even one CPU can be given where the defaults say, if so: NUMA nodes, a core type or a device that
    the machine does not have."""
    named = {key: value for key, value in defaults.for_request().items() if key in PLACES}
    try:
        solve(machine, Request(cpus=1, **named), engine="greedy").require()
    except (BadInputError, InfeasibleError) as error:
        return in_users_words(str(error))
    return ""


def memoryless(sysfs: Path, machine: Topology) -> frozenset[int]:
    """NUMA nodes without memory, as the kernel's ``has_memory`` says; none if it says nothing."""
    try:
        having = parse_cpuset((sysfs / "devices/system/node/has_memory").read_text())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(node.id for node in machine.numa_nodes) - having


def former_names(file: Path, *, keep: bool) -> dict[str, int]:
    """Names of single CPUs as they were published before. ``keep``: claims live that may go by them."""
    if not keep:
        return {}
    try:
        found = json.loads(read_bounded(file, LARGEST))
        if isinstance(found, dict) and all(type(cpu) is int for cpu in found.values()):
            return found
        log.error("%s is no map of devices to CPUs; devices get new names", file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        log.error("%s cannot be read, devices get new names: %s", file, error)
    return {}


def keep_names(file: Path, names: dict[str, int]) -> None:
    """Remember them. Raises ``OSError``."""
    if names:
        write_whole(file, json.dumps(names, indent=0).encode())
    else:
        remove(file)
