"""Commands about quality: one shot, over a node's life, several requests together; and the pictures of them."""

from itertools import product
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from benchmarks import cases as case_files
from benchmarks import churn as churning
from benchmarks import joint as joining
from benchmarks import quality as judging
from benchmarks import reports
from benchmarks.allocators import ALLOCATORS
from benchmarks.traces import MIXES

OUTPUT = click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
SEED = click.option("--seed", default=0, show_default=True, help="Another seed: other instances.")
MACHINES = click.option(
    "--machine", "machines", multiple=True, help="Catalog name or synthetic string, repeatable."
)
PROGRESS = Console(stderr=True)


@click.command()
@MACHINES
@click.option("--sets", default=24, show_default=True, help="Free sets per machine; each under all options.")
@click.option(
    "--cases", "most_cases", default=8, show_default=True, help="Cases of a wasted NUMA node to print, a policy."
)
@SEED
@OUTPUT
def quality(machines: tuple[str, ...], sets: int, most_cases: int, seed: int, output: str) -> None:
    """How far the kubelet's greedy is from the optimum, in one shot. Default: all machines."""
    names = machines or judging.machines()
    judged = [
        one
        for name in track(names, console=PROGRESS, description="quality")
        for one in judging.judge_machine(name, sets, seed)
    ]
    rows, cases = judging.summary(judged), case_files.smallest(judged, most_cases)
    if output == "table":
        reports.show_quality(rows)
        reports.show_cases(cases)
        return
    commands = [{"command": case.command, "greedy": case.greedy, "optimum": case.optimum} for case in cases]
    settings = {"machines": len(names), "sets": sets, "seed": seed}
    by_machine = judging.wasteful(judged, key=lambda one: one.instance.machine)
    by_occupancy = judging.wasteful(judged, key=lambda one: one.instance.occupancy)
    reports.keep("quality", settings, rows=rows, by_machine=by_machine, by_occupancy=by_occupancy, cases=commands)


@click.command()
@click.option("--machine", default="2s8n-128c256t-epyc-7763-nps4", show_default=True)
@click.option("--mix", "mixes", type=click.Choice(list(MIXES)), multiple=True, default=list(MIXES))
@click.option("--rule", "rules", type=click.Choice(churning.RULES), multiple=True, default=churning.RULES)
@click.option("--occupancy", "occupancies", type=click.FloatRange(0.05, 0.99), multiple=True)
@click.option("--allocator", "allocators", type=click.Choice(list(ALLOCATORS)), multiple=True)
@click.option(
    "--against", type=click.Choice(list(ALLOCATORS)), default="kubelet", show_default=True, help="The baseline."
)
@click.option("--arrivals", default=500, show_default=True, help="Claims a trace.")
@click.option("--seeds", default=10, show_default=True, help="Traces a setting.")
@click.option("--processes", default=1, show_default=True)
@OUTPUT
def churn(
    machine: str,
    mixes: tuple[str, ...],
    rules: tuple[str, ...],
    occupancies: tuple[float, ...],
    allocators: tuple[str, ...],
    against: str,
    arrivals: int,
    seeds: int,
    processes: int,
    output: str,
) -> None:
    """Claims arrive and leave on one node, the same trace for each allocator. Occupancies: 0.5 0.7 0.85 0.95."""
    names = allocators or tuple(ALLOCATORS)
    wanted = product(mixes, rules, occupancies or (0.5, 0.7, 0.85, 0.95))
    settings = [churning.Setting(machine, *each) for each in wanted]
    measured = churning.measure(settings, names, against, arrivals, seeds, processes)
    total = len(settings) * len({against, *names})
    rows = list(track(measured, total=total, console=PROGRESS, description="churn"))
    if output == "table":
        reports.show_churn(rows)
        return
    reports.keep("churn", {"arrivals": arrivals, "seeds": seeds, "against": against}, rows=churning.as_json(rows))


@click.command()
@MACHINES
@click.option("--batches", default=24, show_default=True, help="Batches per machine and kind of request.")
@click.option("--time-limit", default=1.0, show_default=True, help="Seconds for each solve.")
@SEED
@OUTPUT
def joint(machines: tuple[str, ...], batches: int, time_limit: float, seed: int, output: str) -> None:
    """Several requests solved together against one by one."""
    names = machines or joining.MACHINES
    wanted = [batch for name in names for batch in joining.batches(name, batches, seed)]
    rows = joining.summary(
        joining.judge(batch, time_limit) for batch in track(wanted, console=PROGRESS, description="joint")
    )
    if output == "table":
        reports.show_joint(rows)
        return
    settings = {"machines": names, "batches": batches, "seed": seed, "time_limit": time_limit}
    reports.keep("joint", settings, rows=rows)


@click.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@click.option("--to", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/pictures"))
def pictures(results: tuple[Path, ...], folder: Path) -> None:
    """Draw what quality, churn, joint or speed printed with --output json. Needs the extra 'bench'."""
    from benchmarks.pictures import draw

    folder.mkdir(parents=True, exist_ok=True)
    for path in results:
        for picture in draw(path, folder):
            click.echo(picture)


COMMANDS = (quality, churn, joint, pictures)
