"""The programs of the project in a shell."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PROGRAMS = {
    "cpusat": "-m cpusat",
    "solve": "-c 'from cpusat.cli import solve_command; solve_command()'",
    "driver": "-c 'from driver.cli import main; main()'",
    "benchmarks": "-m benchmarks",
}


def shell(line: str, *, stdout: int = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[str]:
    """The line in a shell. ``{cpusat}`` and the like in it stand for the programs."""
    line = line.format(**{name: f"{sys.executable} {how}" for name, how in PROGRAMS.items()})
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **env}
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=ROOT,
        env=settings,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
