"""The command line of the benchmarks."""

import json

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import memory as memory_growth
from benchmarks import proof as proof_time
from benchmarks.commands import COMMANDS
from benchmarks.driver_command import driver
from benchmarks.speed_command import speed
from topologies import catalog
from topologies.terminal.program import Guarded


@click.group(cls=Guarded)
def main() -> None:
    """Compare allocators: how good, how fast, and does it pay over a node's life."""


@main.command()
@click.option("--machine", "machines", multiple=True, help="Catalog name or synthetic string; default: all.")
@click.option("--sets", default=50, show_default=True, help="Random free sets per machine and policy.")
@click.option("--engine", type=click.Choice(["auto", "cpsat"]), default="auto", show_default=True)
@click.option("--time-limit", default=1.0, show_default=True, help="Seconds.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def proof(machines: tuple[str, ...], sets: int, engine: str, time_limit: float, output: str) -> None:
    """Time to a proven optimum, beside an empty CP-SAT solve."""
    names = machines or tuple(catalog.names())
    measured = proof_time.measure(names, sets, engine, time_limit)  # type: ignore[arg-type]
    rows = list(track(measured, total=2 * len(names), console=Console(stderr=True), description="proofs"))
    if output == "json":
        click.echo(json.dumps(proof_time.as_json(rows), indent=1))
        return
    table = Table(title=f"time to proof, engine {engine}, {sets} free sets each")
    for column in ("machine", "policy", "proven", "by dp", "median ms", "p99 ms", "worst ms", "x empty solve"):
        table.add_column(column, justify="left" if column in ("machine", "policy") else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.machine,
            row.policy,
            f"{row.proven}/{row.solves}",
            str(row.by_dp),
            *(f"{ms:.1f}" for ms in (row.median_ms, row.p99_ms, row.worst_ms)),
            f"{row.ratio:.1f}",
        )
    Console(width=150).print(table)


@main.command()
@click.option("--machine", default="2s8n-128c256t-epyc-7763-nps4", show_default=True)
@click.option("--solves", default=10_000, show_default=True)
@click.option("--engine", type=click.Choice(["auto", "cpsat"]), default="auto", show_default=True)
def memory(machine: str, solves: int, engine: str) -> None:
    """Resident memory over many solves in one process."""
    for done, resident in memory_growth.growth(machine, solves, engine):
        click.echo(f"{done:>7} solves  {resident:7.1f} MB")


for command in (*COMMANDS, speed, driver):
    main.add_command(command)

if __name__ == "__main__":
    main()
