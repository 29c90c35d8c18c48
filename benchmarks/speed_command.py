"""The command ``speed``: measures, keeps, and shows what was kept."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import cold_start, reports, speed_tables
from benchmarks.speed import SpeedRow, TimeLimits, measure
from benchmarks.speed_points import SERIES, Point, beside_plain_catalog, thinned
from models import BadInputError
from models.request import Policy

POLICIES: tuple[Policy, ...] = ("packed", "distributed")
COLD = "cold"
PROGRESS = Console(stderr=True)
BOXES = {"table": box.HEAVY_HEAD, "markdown": box.MARKDOWN}


@dataclass(frozen=True)
class Plan:
    """What is measured: points with their numbers of instances, starts of each command, and time limits."""

    points: tuple[tuple[Point, int], ...]
    starts: int
    limits: TimeLimits


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*SERIES, COLD]), help="Part, repeatable; default: all.")
@click.option("--quick", is_flag=True, help="Few and small machines, 2 instances each, 1 s for the plain model.")
@click.option("--sets", type=click.IntRange(1), help="Instances per point; default: each axis has its own.")
@click.option("--time-limit", default=1.0, show_default=True, help="Seconds for our engines.")
@click.option("--plain-limit", default=10.0, show_default=True, help="Seconds for the plain model.")
@click.option(
    "--plain-catalog", is_flag=True, help="The plain model on all catalog machines (about half an hour)."
)
@click.option(
    "--from", "kept", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Show kept JSON."
)
@click.option("--output", type=click.Choice([*BOXES, "json"]), default="table", show_default=True)
def speed(
    only: tuple[str, ...],
    quick: bool,
    sets: int | None,
    time_limit: float,
    plain_limit: float,
    plain_catalog: bool,
    kept: Path | None,
    output: str,
) -> None:
    """What an optimum costs in time, against size, engines, an empty solve and a plain model."""
    limits = TimeLimits(time_limit, min(plain_limit, 1.0) if quick else plain_limit)
    if kept is not None:
        rows, cold = read(kept)
    else:
        rows, cold = _measured(_plan(only or (*SERIES, COLD), quick, sets, plain_catalog, limits))
    if output == "json":
        settings = {"sets": sets, "quick": quick, "time_limit": time_limit, "plain_limit": limits.plain}
        settings["load"] = round(getloadavg()[0], 2)
        reports.keep("speed", settings, rows=rows, cold=cold)
        return
    for sheet in speed_tables.sheets(rows, cold):
        _show(sheet, BOXES[output])


def _plan(only: Sequence[str], quick: bool, sets: int | None, plain_catalog: bool, limits: TimeLimits) -> Plan:
    points: list[tuple[Point, int]] = []
    for name, series in SERIES.items():
        if name in only:
            found = beside_plain_catalog() if name == "plain" and plain_catalog else series.points()
            count = sets or (2 if quick else series.sets)
            points += [(point, count) for point in (thinned(found) if quick else found)]
    starts = 0 if COLD not in only else 1 if quick else 3
    return Plan(tuple(points), starts, limits)


def _measured(plan: Plan) -> tuple[list[SpeedRow], list[cold_start.ColdRow]]:
    """All rows, with a progress bar; commands start first, while the process that starts them is small."""
    with PROGRESS.status("cold starts"):
        cold = cold_start.measure_all(plan.starts) if plan.starts else []
    parts = [(*point, policy) for point in plan.points for policy in POLICIES]
    rows: list[SpeedRow] = []
    for point, sets, policy in track(parts, console=PROGRESS, description="speed"):
        rows += measure(point, policy, sets, plan.limits)
    return rows, cold


def read(path: Path) -> tuple[list[SpeedRow], list[cold_start.ColdRow]]:
    """Rows that were kept as JSON. Raises ``BadInputError`` when the file holds none."""
    try:
        document = json.loads(path.read_text())
        rows = [
            SpeedRow(**row | {name: tuple(row[name]) for name in ("within", "differing")})
            for row in document["rows"]
        ]
        return rows, [cold_start.ColdRow(**row) for row in document["cold"]]
    except (ValueError, KeyError, TypeError):
        raise BadInputError("not what --output json of speed prints", file=str(path)) from None


def _show(sheet: speed_tables.Sheet, style: box.Box) -> None:
    table = Table(title=sheet.title, box=style)
    for position, column in enumerate(sheet.columns):
        table.add_column(column, justify="left" if position < sheet.texts else "right", no_wrap=True)
    for line in sheet.lines:
        table.add_row(*line)
    Console(width=150).print(table)
