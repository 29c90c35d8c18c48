"""What the tests of readers share: trees written from a table, and a machine's domains as kernel lists."""

from collections.abc import Mapping
from pathlib import Path

from models import Topology, format_cpuset

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write the files below ``root``; a text that starts with ``->`` becomes a symbolic link."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        elif text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_text(text + "\n")
    return root


def sysfs_cpu(number: int, siblings: str, socket: int = 0, l3: str | None = None, **more: str) -> dict[str, str]:
    """The files of one CPU: siblings, socket, and its L3 beside an L2 of its core."""
    cpu = f"{CPU}/cpu{number}"
    files = {f"{cpu}/topology/thread_siblings_list": siblings, f"{cpu}/topology/physical_package_id": str(socket)}
    for index, (level, shared) in enumerate([("2", siblings), ("3", l3)]):
        if shared is not None:
            files |= {
                f"{cpu}/cache/index{index}/level": level,
                f"{cpu}/cache/index{index}/type": "Unified",
                f"{cpu}/cache/index{index}/shared_cpu_list": shared,
            }
    return files | {f"{cpu}/{name.replace('__', '/')}": text for name, text in more.items()}


def domains(topology: Topology, level: str) -> list[str]:
    """The CPUs of each domain of the level, as kernel lists, ordered by lowest CPU."""
    found: dict[int, list[int]] = {}
    for cpu in sorted(topology.cpus, key=lambda cpu: cpu.cpu):
        if getattr(cpu, level) is not None:
            found.setdefault(getattr(cpu, level), []).append(cpu.cpu)
    return [format_cpuset(cpus) for cpus in found.values()]


def numa(topology: Topology) -> dict[str, str]:
    """The CPUs of each NUMA node by its id; an empty list for a node without CPUs."""
    found = {node.id: [cpu.cpu for cpu in topology.cpus if cpu.numa == node.id] for node in topology.numa_nodes}
    return {str(node): format_cpuset(cpus) for node, cpus in found.items()}


def core_types(topology: Topology) -> dict[str, str]:
    """The CPUs of each core type."""
    types = {cpu.core_type for cpu in topology.cpus}
    return {kind: format_cpuset(c.cpu for c in topology.cpus if c.core_type == kind) for kind in sorted(types)}


def short(value: object) -> str:
    """A name for a test's parameter, which may be megabytes of text."""
    return repr(value)[:40]
