"""``cpusat-driver check``: what is wrong with a configuration, in itself or on a machine."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from driver.cli.state import HOST
from driver.config import Config, examine
from driver.devices.device import Device
from driver.devices.devices import devices_of
from driver.host import Host
from driver.misfits import misfits
from models import BadInputError, Topology
from topologies.load import load
from topologies.shape import Shape
from topologies.terminal.program import SOURCE, brief
from topologies.terminal.streams import printable, say

PARAMS = (
    click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        required=True,
        help="The YAML file that the driver is to read.",
    ),
    click.Option(
        ["--topology"], metavar="SOURCE", default=HOST, show_default=True, help="The machine it is to fit."
    ),
    click.Option(["--output"], type=click.Choice(["table", "json"]), default="table", show_default=True),
)

BAD = 2
"""The exit code for a configuration that is bad."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong; the machine, if the file could be read, and what the driver would publish of it."""

    errors: tuple[BadInputError, ...]
    machine: Topology | None = None
    devices: tuple[Device, ...] = ()


@click.pass_context
def check(ctx: click.Context, config: Path, topology: str, output: str) -> None:
    """Tell what is wrong with a configuration before it is rolled out.

    Exit codes: 0 nothing is, 2 something is, or the machine cannot be read.
    """
    verdict = judge(config, topology)
    show = {"table": _show, "json": _show_json}[output]
    show(config, verdict)
    ctx.exit(BAD if verdict.errors else 0)


def judge(file: Path, source: str) -> Verdict:
    """All mistakes in the file; if there are none, what of it the machine cannot meet.

    Raises ``BadInputError`` where the machine cannot be read.
    """
    config = examine(file)
    if isinstance(config, list):
        return Verdict(tuple(config))
    host = _host(config, source)
    errors = tuple(each.within(str(file)) for each in misfits(config, host.topology, host.cpus))
    return Verdict(errors, host.topology, tuple(devices_of(config, host.topology, host.cpus)))


def _host(config: Config, source: str) -> Host:
    return Host.read(config) if source == HOST else Host.of(config, load(source))


def _show(file: Path, verdict: Verdict) -> None:
    for error in verdict.errors:
        say(printable(f"bad  {brief(error)}"))
    if not verdict.errors and verdict.machine:
        size = f"{len(verdict.devices)} device{'s' if len(verdict.devices) != 1 else ''}"
        shape = Shape.of(verdict.machine)
        say(printable(f"ok   {file}: {size} with {_published(verdict)} CPUs of {shape}"))


def _show_json(file: Path, verdict: Verdict) -> None:
    document: dict[str, Any] = {
        "config": str(file),
        "machine": str(Shape.of(verdict.machine)) if verdict.machine else None,
        "devices": [each.name for each in verdict.devices],
        "cpus": _published(verdict),
        "errors": [{"place": each.place, "reason": each.reason} for each in verdict.errors],
    }
    say(json.dumps(document, indent=2))


def _published(verdict: Verdict) -> int:
    """How many CPUs claims can have."""
    return sum(each.capacity.value if each.capacity else len(each.cpus) for each in verdict.devices)


command = click.Command("check", callback=check, params=list(PARAMS), help=check.__doc__, epilog=SOURCE)
