"""How fast the driver's solver answers and how big it gets: ``python -m tests.driver.measure``.

Claims come and go on a machine until as many as asked for were answered; each one sees the CPUs that the others
left free.
"""

import json
import random
import time
from collections import defaultdict, deque
from pathlib import Path
from statistics import median, quantiles

import click

from driver.solving.client import WorkerSolver
from models import Request
from solver.cli.terminal import render
from tests.driver.recorder import Recorder
from topologies.load import load

MACHINES = ("1s1n-16c32t-ryzen-9950x", "2s8n-128c256t-epyc-7763-nps4", "2s8n-256c512t-epyc-9754-nps4")
STARTS = 5
FULLEST, JOINT = 0.8, 0.05
"""Part of the machine that claims hold together at most; part of the claims that have two requests."""


@click.command()
@click.option("--claims", type=click.IntRange(10), default=5000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.argument("machines", nargs=-1)
def main(claims, seed, output, machines):
    """Measure CP-SAT's process and greedy on MACHINES, by default three of the catalog."""
    cases = [(name, engine) for name in machines or MACHINES for engine in ("cpsat", "greedy")]
    rows = [row for case in cases for row in measure(*case, claims, seed)]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    table = Table(*rows[0], box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    render(table)


def measure(name, engine, claims, seed):
    """A row per number of requests a claim: milliseconds, and MB resident in both processes, before and after."""
    machine, recorder = load(name), Recorder()
    starts = [start(machine) for _ in range(STARTS)] if engine == "cpsat" else []
    solver = WorkerSolver(machine, 2.0 if engine == "cpsat" else 0.0, recorder)
    solver.start()
    wait(solver, engine)
    before = resident("self"), solver.pid and resident(solver.pid)
    times = defaultdict(list)
    for requests, seconds in answers(solver, machine, claims, random.Random(seed)):
        times[requests].append(1000 * seconds)
    common = {
        "start": round(1000 * median(starts)) if starts else None,
        "fallbacks": recorder.fallbacks.total(),
        "driver MB": f"{before[0]} to {resident('self')}",
        "solver MB": solver.pid and f"{before[1]} to {resident(solver.pid)}",
    }
    solver.stop()
    return [
        {"machine": name, "engine": engine, "requests": requests} | statistics(times[requests]) | common
        for requests in sorted(times)
    ]


def statistics(times):
    """Median, 99th percentile and worst."""
    numbers = {
        "median": median(times),
        "p99": quantiles(times, n=100, method="inclusive")[98],
        "worst": max(times),
    }
    return {"answers": len(times)} | {name: round(value, 2) for name, value in numbers.items()}


def start(machine):
    """Seconds from ``start`` until the process is ready."""
    solver = WorkerSolver(machine, 2.0, Recorder())
    began = time.perf_counter()
    solver.start()
    wait(solver, "cpsat")
    taken = time.perf_counter() - began
    solver.stop()
    return taken


def wait(solver, engine):
    while engine == "cpsat" and solver.pid is None:
        time.sleep(0.001)


def answers(solver, machine, claims, chance):
    """Number of requests and seconds of each answer, while claims come and the oldest go."""
    live = deque()
    free = machine.allocatable
    size = len(free)
    for _ in range(claims):
        requests = claim(chance, size)
        while live and size - len(free) + sum(each.cpus for each in requests) > FULLEST * size:
            free |= live.popleft()
        began = time.perf_counter()
        result = solver.solve(requests, free)
        yield len(requests), time.perf_counter() - began
        given = frozenset().union(*(each.cpuset for each in result.allocations))
        free -= given
        live.append(given)


def claim(chance, size):
    """Mostly one request, of up to a fourth of the machine."""
    return [
        Request(
            name=f"r{number}",
            cpus=chance.randint(1, max(1, size // 4 // (number + 1))),
            policy=chance.choice(("packed", "packed", "distributed")),
            prefer_l3=chance.random() < 0.2,
        )
        for number in range(1 + (chance.random() < JOINT))
    ]


def resident(process):
    """MB resident, as the kernel counts them."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024)


if __name__ == "__main__":
    main()
