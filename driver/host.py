"""This node: its name, its machine, and the single CPUs' names that have to outlive a restart."""

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from driver.config import Config
from driver.durable import read_bounded, remove, write_whole
from driver.misfits import nothing_to_give
from driver.node import NodeCPUs
from driver.node_name import node_name
from driver.overlay import overlaid
from driver.watch import ONLINE, isolated, online_now
from models import Topology, parse_cpuset
from topologies.readers.sysfs import read_sysfs

log = logging.getLogger(__name__)

POD_UID = "POD_UID"

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
            host = cls.of(config, machine, isolated(sysfs))
            online = online_now(sysfs) if sysfs != base and not (sysfs / ONLINE).is_symlink() else None
            cpus = replace(host.cpus, memoryless=memoryless(sysfs, machine))
        return replace(host, sysfs=base, cpus=cpus, online_overlaid=online)

    @classmethod
    def of(cls, config: Config, machine: Topology, isolated: frozenset[int] = frozenset()) -> "Host":
        """A machine as it would be here."""
        topology = machine.model_copy(update={"reserved": config.reserved_cpus & machine.online})
        cpus = NodeCPUs.of(topology, isolated, config.min_shared_cpus)
        return cls(node_name(config), Path("/sys"), topology, cpus)

    def check(self) -> None:
        """Raise ``BadInputError`` where there is nothing to give. Claims that live are looked after even so."""
        if nothing := nothing_to_give(self.cpus):
            raise nothing

    def online(self) -> frozenset[int]:
        """CPUs that are up now, as the kernel says unless the overlay does."""
        return online_now(self.sysfs) if self.online_overlaid is None else self.online_overlaid


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
