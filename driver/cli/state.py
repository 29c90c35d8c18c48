"""``cpusat-driver state``: who holds which CPUs, from the ledger on disk, whether the driver runs or not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from driver.cli.run import CONFIG
from driver.config import Config, read_config
from driver.kubelet.folders import Folders
from driver.ledger.entry import Entry
from driver.ledger.files import Aside, aside, quarantined, read_entry
from driver.overlay import lay, read_overlay
from models import BadInputError, Topology, format_cpuset
from topologies.load import load
from topologies.overlay import overlaid
from topologies.readers.sysfs import read_sysfs
from topologies.terminal.program import SOURCE
from topologies.terminal.streams import printable, say

PARAMS = (
    CONFIG,
    click.Option(
        ["--ledger"],
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The folder of the ledger.  [default: in the kubelet's folder of the driver]",
    ),
    click.Option(["--topology"], metavar="SOURCE", default="host", show_default=True, help="The machine."),
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
        return named | {cpu: f"held by {title(entry)}" for entry in self.entries for cpu in sorted(entry.cpuset)}


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
    return Holdings(sorted(entries, key=title), [*unreadable, *quarantined(folder)])


def title(entry: Entry) -> str:
    """The claim as people know it."""
    return f"{entry.namespace}/{entry.name}" if entry.name else entry.uid


def state(config: Path | None, ledger: Path | None, topology: str, output: str) -> None:
    """Show who holds which CPUs."""
    settings = read_config(config)
    folder = ledger or Folders(settings.kubelet_root_dir).ledger
    machine, holdings = machine_of(settings, topology), read_holdings(folder)
    if output == "json":
        say(json.dumps(as_document(machine, holdings), indent=2))
    else:
        show(machine, holdings)


def machine_of(settings: Config, source: str) -> Topology:
    """The machine, under what the configuration says of it."""
    if source == "host" and settings.sysfs_overlay:
        with TemporaryDirectory() as into:
            sysfs = lay(read_overlay(Path(settings.sysfs_overlay)), Path("/sys"), Path(into))
            machine = read_sysfs(sysfs, name="host")
    else:
        machine = load(source)
    return overlaid(machine, format_cpuset(settings.reserved_cpus & machine.online) or None, ())


def as_document(machine: Topology, holdings: Holdings) -> dict[str, Any]:
    """The state as plain values, CPUs as kernel lists."""
    return {
        "machine": machine.name,
        "reserved": format_cpuset(machine.reserved),
        "free": format_cpuset(machine.allocatable - holdings.holders.keys()),
        "claims": [
            {
                **entry.model_dump(mode="json", include={"uid", "namespace", "name", "cpuset", "mems", "adopted"}),
                "numa_nodes": numa_nodes(machine, entry),
                "engine": entry.engine,
                "pods": sorted(entry.pods),
                "owner": entry.owner and entry.owner.model_dump(),
            }
            for entry in holdings.entries
        ],
        "unreadable": [
            {"file": str(each.file), "reason": each.reason, "cpuset": format_cpuset(each.cpus)}
            for each in holdings.unreadable
        ],
    }


def numa_nodes(machine: Topology, entry: Entry) -> str:
    """NUMA nodes of the claim's CPUs, as a kernel list."""
    return format_cpuset({cpu.numa for cpu in machine.cpus if cpu.cpu in entry.cpuset and cpu.numa is not None})


def carriers(entry: Entry) -> tuple[Sequence[str], str]:
    """Uid of the pod that carries the claim, and its container; while none does, of the pods that may."""
    return ([entry.owner.pod_uid], entry.owner.container) if entry.owner else (sorted(entry.pods), "-")


def show(machine: Topology, holdings: Holdings) -> None:
    """Draw the machine, and list the claims below it."""
    from rich.table import Table
    from rich.text import Text

    from topologies.terminal.cpu_list import CPUList
    from topologies.terminal.drawing import Drawing
    from topologies.terminal.render import render

    table = Table("claim", "pod", "container", "CPUs", "NUMA nodes", "engine", box=None, padding=(0, 2, 0, 0))
    for entry in holdings.entries:
        pods, container = carriers(entry)
        engine = "adopted" if entry.adopted else entry.engine or "given"
        words = [Text(printable(word)) for word in (title(entry), ", ".join(pods) or "-", container)]
        table.add_row(*words, CPUList(entry.cpuset), numa_nodes(machine, entry) or "-", engine)
    bad = [Text(printable(f"cannot be read: {each}"), "red") for each in holdings.unreadable]
    render(Drawing(machine, holdings.holders), "", table if holdings.entries else "no claim holds CPUs", *bad)


command = click.Command("state", callback=state, params=list(PARAMS), help=state.__doc__, epilog=SOURCE)
