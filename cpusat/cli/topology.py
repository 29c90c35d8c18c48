"""``cpusat topology``: list, draw, convert and check machines."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from cpusat.cli.claims import STDIN, read_claim
from cpusat.cli.options import OVERLAYS
from models import BadInputError
from topologies import catalog
from topologies.load import load
from topologies.overlay import overlaid
from topologies.shape import Shape
from topologies.terminal.program import SOURCE, brief
from topologies.terminal.render import render
from topologies.terminal.streams import printable, say


@click.group(epilog=SOURCE)
def command() -> None:
    """List, draw, convert and check machines."""


@command.command("list")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_machines(output: str) -> None:
    """List the machines of the catalog."""
    shapes = {name: Shape.of(catalog.read(name)) for name in catalog.names()}
    if output == "json":
        say(json.dumps([{"name": name} | asdict(shape) for name, shape in shapes.items()], indent=2))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", overflow="fold")
    for column in ("sockets", "NUMA\nnodes", "L3s", "cores", "CPUs", "SMT"):
        table.add_column(column, justify="right")
    for name, shape in shapes.items():
        smt = "-".join(map(str, shape.smt))
        counts = (shape.sockets, shape.numa_nodes, shape.l3s, shape.cores, shape.cpus, smt)
        table.add_row(name, *map(str, counts))
    render(table)


@command.command(epilog=SOURCE, params=list(OVERLAYS))
@click.argument("source")
@click.option(
    "--output",
    type=click.Choice(["drawing", "dot"]),
    default="drawing",
    show_default=True,
    help="For the terminal, or the machine's graph for Graphviz.",
)
def show(source: str, output: str, reserved: str | None, held: tuple[str, ...]) -> None:
    """Draw a machine: its sockets, NUMA nodes, L3s, cores, and which CPUs are free."""
    machine = overlaid(load(source), reserved, held)
    if output == "dot":
        from topologies.graph.dot import as_dot

        say("\n".join(as_dot(machine)))
        return
    from topologies.terminal.drawing import Drawing

    render(Drawing(machine))


@command.command(epilog=SOURCE, params=list(OVERLAYS))
@click.argument("source")
@click.option("--output", metavar="FILE", default="-", help="Where to write; standard output if left out.")
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
def convert(source: str, output: str, force: bool, reserved: str | None, held: tuple[str, ...]) -> None:
    """Write a machine as a JSON document, with what is reserved and held."""
    text = overlaid(load(source), reserved, held).to_json()
    if output == "-":
        say(text, end="")
    else:
        _write(Path(output), text, force=force)


@command.command(epilog=SOURCE)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.pass_context
def validate(ctx: click.Context, sources: tuple[str, ...]) -> None:
    """Check machines, one line each; exit code 2 if any is bad."""
    bad = False
    for source in sources:
        try:
            say(printable(f"ok   {source}: {Shape.of(load(source))}"))
        except BadInputError as error:
            bad = True
            say(printable(f"bad  {brief(error.within(source))}{_hint(source)}"))
    ctx.exit(2 if bad else 0)


def _hint(source: str) -> str:
    """Where a claims file belongs, which is easily taken for a machine."""
    try:
        claim = None if source == STDIN else read_claim(source)
    except BadInputError:
        claim = None
    return "" if claim is None else "; it is a claims file: 'solve --topology SOURCE --claims FILE' reads it"


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write the file whole or not at all."""
    if path.exists() and not (force and path.is_file()):
        reason = "exists; --force overwrites it" if path.is_file() else "is not a file that could be overwritten"
        raise BadInputError(reason, place="--output", file=str(path))
    try:
        with click.open_file(str(path), "w", encoding="utf-8", atomic=True) as file:
            file.write(text)
    except OSError as error:
        raise BadInputError(error.strerror or str(error), place="--output", file=str(path)) from error
