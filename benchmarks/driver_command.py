"""The command ``driver``: what the kubelet waits for. It needs the extra ``driver``."""

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import reports

MACHINES = ("1s1n-16c32t-ryzen-9950x", "2s8n-128c256t-epyc-7763-nps4", "2s8n-256c512t-epyc-9754-nps4")
PARTS = ("solver", "prepare")
ENGINES = ("cpsat", "greedy")
TEXTS = 3
"""Columns of a row that are no numbers."""


@click.command()
@click.option("--machine", "machines", multiple=True, help="Catalog name or synthetic string; default: three.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS, show_default=True)
@click.option("--claims", type=click.IntRange(10), default=5000, show_default=True, help="Per machine and engine.")
@click.option("--seed", default=1, show_default=True)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def driver(machines: tuple[str, ...], parts: tuple[str, ...], claims: int, seed: int, output: str) -> None:
    """How long Prepare takes, through the driver's sockets and in its solver alone; start and memory."""
    from benchmarks.driver import prepare, solver
    from benchmarks.driver.rows import HEADINGS

    measure = {"solver": solver.measure, "prepare": prepare.measure}
    names = machines or MACHINES
    cases = [(name, part, engine) for name in names for part in parts for engine in ENGINES]
    starts = {name: round(solver.start_seconds(name), 2) for name in names}
    rows = [
        row
        for name, part, engine in track(cases, console=Console(stderr=True), description="driver")
        for row in measure[part](name, engine, claims, seed)
    ]
    if output == "json":
        reports.keep("driver", {"claims": claims, "seed": seed}, rows=rows, solver_start_seconds=starts)
        return
    table = Table(title=f"{claims} claims each; the solver starts in {max(starts.values())} s")
    for position, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if position < TEXTS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.cells())
    Console(width=170).print(table)
