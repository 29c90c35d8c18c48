"""Where and with what a measurement was made, for the head of every kept result."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("ortools", "numpy", "networkx", "pydantic")


def provenance() -> dict[str, str]:
    """Date, commit, processor and versions, as text."""
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        **libraries,
    }


def _commit() -> str:
    """The commit that is checked out, marked with a plus where what is measured differs from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    return commit + (
        "+" if _git("status", "--short", "driver", "solver", "models", "topologies", "cpusat") else ""
    )


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
