"""A ``/sys`` tree that reads as a given machine."""

from collections.abc import Callable
from pathlib import Path

from models import CPU, Topology, format_cpuset
from tests.topologies.helpers import CPU as CPUS
from tests.topologies.helpers import NODE, sysfs_cpu, write_tree


def write_sysfs(root: Path, topology: Topology) -> Path:
    """Write it; the root."""
    files = {f"{CPUS}/online": format_cpuset(topology.online)}
    for cpu in topology.cpus:
        l3 = None if cpu.l3 is None else _together(topology, cpu, lambda each: each.l3)
        files |= sysfs_cpu(cpu.cpu, _together(topology, cpu, lambda each: each.core), cpu.socket, l3)
    for node in topology.numa_nodes:
        mine = [cpu.cpu for cpu in topology.cpus if cpu.numa == node.id]
        others = sorted(topology.numa_nodes, key=lambda each: each.id)
        files[f"{NODE}/node{node.id}/cpulist"] = format_cpuset(mine)
        files[f"{NODE}/node{node.id}/distance"] = " ".join(
            str(node.distances.get(other.id, 10 if other is node else 20)) for other in others
        )
    return write_tree(root, files)


def _together(topology: Topology, cpu: CPU, domain: Callable[[CPU], object]) -> str:
    return format_cpuset(each.cpu for each in topology.cpus if domain(each) == domain(cpu))
