"""The command ``driver``: what the kubelet waits for. It needs the extra ``test``, for the tests' doubles."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import reports

if TYPE_CHECKING:
    from benchmarks.driver.rows import AttackRow, CallRow

MACHINES = ("1s1n-16c32t-ryzen-9950x", "2s8n-128c256t-epyc-7763-nps4", "2s8n-256c512t-epyc-9754-nps4")
PARTS = ("solver", "prepare", "containerd", "attacks")
ENGINES = ("cpsat", "greedy")
TEXTS = 3
"""Columns of a row that are no numbers."""


@click.command()
@click.option("--machine", "machines", multiple=True, help="Catalog name or synthetic string; default: three.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS, show_default=True)
@click.option("--claims", type=click.IntRange(10), default=1000, show_default=True, help="Per machine and engine.")
@click.option("--seed", default=1, show_default=True)
@click.option("--attack-seconds", default=15.0, show_default=True, help="That each attack goes on.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def driver(
    machines: tuple[str, ...], parts: tuple[str, ...], claims: int, seed: int, attack_seconds: float, output: str
) -> None:
    """How long Prepare takes: in the solver alone, through the driver's sockets, and with a real containerd on
    this machine; how long the solver takes to start, and how big both get; how long the runtime waits for the
    driver's handlers while it is attacked."""
    from benchmarks.driver.rows import ATTACK_HEADINGS, HEADINGS
    from benchmarks.driver.solver import start_seconds

    measures = list(_measures(machines or MACHINES, parts, claims, seed))
    starts = {name: round(start_seconds(name), 2) for name in machines or MACHINES if set(parts) - {"attacks"}}
    attacks = list(_attacks(machines, attack_seconds)) if "attacks" in parts else []
    console = Console(stderr=True)
    rows = [row for measure in track(measures, "calls", console=console) for row in measure()]
    attacked = [row for measure in track(attacks, "attacks", console=console) for row in measure()]
    if output == "json":
        settings = {"claims": claims, "seed": seed, "attack_seconds": attack_seconds}
        reports.keep("driver", settings, rows=rows, attacks=attacked, solver_start_seconds=starts)
        return
    if rows:
        started = max(starts.values())
        _print(f"{claims} claims each; the solver starts in {started} s", HEADINGS, TEXTS, rows)
    if attacked:
        _print(f"what the runtime waits for; {attack_seconds:g} s each", ATTACK_HEADINGS, 1, attacked)


def _print(title: str, headings: Sequence[str], texts: int, rows: "Sequence[CallRow | AttackRow]") -> None:
    table = Table(title=title)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="left" if position < texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.cells())
    Console(width=240).print(table)


def _attacks(machines: tuple[str, ...], seconds: float) -> "Iterator[Callable[[], Iterator[AttackRow]]]":
    """What is to be done to the driver, one after the other, on the first of the machines that were asked for."""
    from benchmarks.driver.attacks import ATTACKS, MACHINE, measure

    machine = machines[0] if machines else MACHINE
    yield from (partial(measure, attack, seconds, machine) for attack in ATTACKS)


def _measures(
    machines: tuple[str, ...], parts: tuple[str, ...], claims: int, seed: int
) -> "Iterator[Callable[[], Iterator[CallRow]]]":
    """What is to be measured, one after the other."""
    from benchmarks.driver import containerd, prepare, solver
    from tests.driver.runtime.conftest import why_not

    for name in machines:
        for part, measure in (("solver", solver.measure), ("prepare", prepare.measure)):
            if part in parts:
                yield from (partial(measure, name, engine, claims, seed) for engine in ENGINES)
    if "containerd" in parts:
        if reason := why_not():
            click.echo(f"no containerd: {reason}", err=True)
            return
        yield from (partial(containerd.measure, release) for release in containerd.RELEASES)
