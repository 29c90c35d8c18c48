"""The command from a cold start, beside the bare imports that it cannot do without: time, and resident memory."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.instances import topology

ROOT = Path(__file__).resolve().parent.parent

IMPORTS = {
    "python alone": "pass",
    "import click, pydantic, networkx": "import click, pydantic, networkx",
    "… and numpy": "import click, pydantic, networkx, numpy",
    "… and OR-Tools": "import click, pydantic, networkx, numpy, ortools.sat.python.cp_model",
}
ENGINES = ("greedy", "auto", "cpsat")
MACHINES = {16: "socket:2 numa:4 core:1 cpu:2", 1024: "socket:2 numa:4 l3:8 core:8 cpu:2"}

PEAK = """
import atexit, sys
def peak():
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(peak)
"""
"""Prints the most resident memory of the process in KiB: what wait4 says of it starts from its parent's."""

COMMAND = "import sys; from cpusat.cli import solve_command; sys.argv = {!r}; solve_command()"


@dataclass(frozen=True)
class Launch:
    """What is started: Python code, what it is called in the tables, and the machine's CPUs (0: none)."""

    what: str
    cpus: int
    code: str


@dataclass(frozen=True)
class ColdRow:
    """One command: median and worst seconds of several starts, and the most memory it held, in MB."""

    what: str
    cpus: int
    starts: int
    median_s: float
    worst_s: float
    peak_mb: float


def measure_all(repeats: int) -> list[ColdRow]:
    """A row for each start; they take turns, after one round that fills the disk's cache."""
    with TemporaryDirectory(prefix="cpusat-") as folder:
        asked = _starts(Path(folder))
        for start in asked:
            _run(start.code)
        rounds = [[_run(start.code) for start in asked] for _ in range(repeats)]
    return [_row(start, runs) for start, runs in zip(asked, zip(*rounds, strict=True), strict=True)]


def _starts(folder: Path) -> list[Launch]:
    """Bare imports, then the command with each engine on a small and on a large machine."""
    found = [Launch(name, 0, code) for name, code in IMPORTS.items()]
    for cpus, description in MACHINES.items():
        document = folder / f"{cpus}.json"
        document.write_text(topology(description).model_dump_json())
        found += [Launch(f"solve, {engine}", cpus, _command(document, cpus, engine)) for engine in ENGINES]
    return found


def _command(document: Path, cpus: int, engine: str) -> str:
    asks = ["--cpus", str(cpus // 3), "--policy", "distributed", "--engine", engine, "--output", "cpuset"]
    return COMMAND.format(["solve", "--topology", str(document), *asks])


def _row(start: Launch, runs: Sequence[tuple[float, float]]) -> ColdRow:
    seconds = [run[0] for run in runs]
    return ColdRow(start.what, start.cpus, len(runs), median(seconds), max(seconds), max(run[1] for run in runs))


def _run(code: str) -> tuple[float, float]:
    """Wall time in seconds and peak of resident memory in MB of a new Python."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK + code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - begin, int(done.stderr.split()[-1]) * 1024 / 1e6
