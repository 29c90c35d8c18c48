"""``cpusat-driver state``: who holds which CPUs, from the ledger on disk, whether the driver runs or not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from driver.cli.run import CONFIG
from driver.config import Config, read_config
from driver.kubelet.folders import Folders
from driver.ledger.entry import Entry
from driver.ledger.files import Aside, aside, quarantined, read_entry
from driver.node import numa_nodes
from driver.node_name import FILE, node_name, remembered_name
from driver.overlay import overlaid as under_overlay
from models import BadInputError, Topology, format_cpuset
from topologies.load import load
from topologies.overlay import overlaid
from topologies.readers.sysfs import read_sysfs
from topologies.terminal.program import SOURCE
from topologies.terminal.streams import printable, say

HOST = "host"
"""The machine that we run on, as a source of topologies."""

PARAMS = (
    CONFIG,
    click.Option(
        ["--ledger"],
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The folder of the ledger.  [default: in the kubelet's folder of the driver]",
    ),
    click.Option(["--topology"], metavar="SOURCE", default=HOST, show_default=True, help="The machine."),
    click.Option(["--output"], type=click.Choice(["table", "json"]), default="table", show_default=True),
)


@dataclass(frozen=True)
class Holdings:
    """What a ledger's folder says: its entries, and why files that look like entries are none."""

    entries: Sequence[Entry] = ()
    unreadable: Sequence[Aside] = ()

    @property
    def holders(self) -> dict[int, str]:
        """Whose each CPU is. Those that a file names which cannot be read are nobody else's either."""
        named = {cpu: f"held by {each.file.name}" for each in self.unreadable for cpu in sorted(each.cpus)}
        return named | {cpu: f"held by {entry.title}" for entry in self.entries for cpu in sorted(entry.cpuset)}


def read_holdings(folder: Path) -> Holdings:
    """The ledger in the folder, as it is now. Nothing is changed, locked or repaired."""
    if not folder.is_dir():
        raise BadInputError("is no folder: has the driver ever run here? --ledger names another", file=str(folder))
    entries: list[Entry] = []
    unreadable: list[Aside] = []
    for file in sorted(file for file in folder.glob("*.json") if file.is_file()):
        try:
            entries.append(read_entry(file))
        except FileNotFoundError:
            pass  # Its claim has ended meanwhile.
        except (OSError, ValueError) as error:
            unreadable.append(aside(file, getattr(error, "strerror", None) or str(error)))
    entries.sort(key=lambda entry: entry.title)
    return Holdings(entries, [*unreadable, *quarantined(folder)])


def state(config: Path | None, ledger: Path | None, topology: str, output: str) -> None:
    """Show who holds which CPUs."""
    settings = read_config(config)
    folder = ledger or Folders(settings.kubelet_root_dir).ledger
    node = remembered_name(folder.with_name(FILE)) or node_name(settings)
    machine, holdings = machine_of(settings, topology, node), read_holdings(folder)
    if output == "json":
        say(json.dumps(as_document(node, machine, holdings), indent=2))
    else:
        show(node, machine, holdings)


def machine_of(settings: Config, source: str, node: str) -> Topology:
    """The machine, under what the configuration says of it. The one that we run on is called as the node is."""
    if source == HOST and settings.sysfs_overlay:
        with under_overlay(settings.sysfs_overlay, Path("/sys")) as sysfs:
            machine = read_sysfs(sysfs, name=node)
    else:
        machine = load(source)
        if source == HOST:
            machine = machine.model_copy(update={"name": node})
    return overlaid(machine, format_cpuset(settings.reserved_cpus & machine.online) or None, ())


def as_document(node: str, machine: Topology, holdings: Holdings) -> dict[str, Any]:
    """The state as plain values, CPUs as kernel lists."""
    return {
        "node": node,
        "machine": machine.name,
        "reserved": format_cpuset(machine.reserved),
        "free": format_cpuset(machine.allocatable - holdings.holders.keys()),
        "claims": [_claim(machine, entry) for entry in holdings.entries],
        "unreadable": [
            {"file": str(each.file), "reason": each.reason, "cpuset": format_cpuset(each.cpus)}
            for each in holdings.unreadable
        ],
    }


def _claim(machine: Topology, entry: Entry) -> dict[str, Any]:
    return {
        **entry.model_dump(mode="json", include={"uid", "namespace", "name", "cpuset", "mems", "adopted"}),
        "numa_nodes": format_cpuset(numa_nodes(machine, entry.cpuset)),
        "engine": entry.engine,
        "pods": sorted(entry.pods),
        "pod_names": {uid: entry.pod_title(uid) for uid in sorted(entry.pods) if entry.pod_names.get(uid)},
        "owner": entry.owner and entry.owner.model_dump(),
        "carried_by": entry.pod_title(entry.owner.pod_uid) if entry.owner else None,
    }


def show(node: str, machine: Topology, holdings: Holdings) -> None:
    """Draw the node's machine, and list the claims below it."""
    from rich.table import Table
    from rich.text import Text

    from topologies.terminal.cpu_list import CPUList
    from topologies.terminal.drawing import Drawing
    from topologies.terminal.render import render

    table = Table("claim", "pod", "container", "CPUs", "NUMA nodes", "engine", box=None, padding=(0, 2, 0, 0))
    for entry in holdings.entries:
        container = entry.owner.container if entry.owner else "-"
        words = [Text(printable(word)) for word in (entry.title, ", ".join(entry.carriers) or "-", container)]
        spanned = format_cpuset(numa_nodes(machine, entry.cpuset)) or "-"
        table.add_row(*words, CPUList(entry.cpuset), spanned, entry.chosen_by)
    bad = [Text(printable(f"cannot be read: {each}"), "red") for each in holdings.unreadable]
    heading = f"node {node}" if machine.name == node else f"node {node}, drawn as {machine.name}"
    drawing = Drawing(machine.model_copy(update={"name": heading}), holdings.holders)
    render(drawing, "", table if holdings.entries else "no claim holds CPUs", *bad)


command = click.Command("state", callback=state, params=list(PARAMS), help=state.__doc__, epilog=SOURCE)
