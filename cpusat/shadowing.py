"""Names a package of the caller's that hides one of ours, which would otherwise fail in a puzzling place."""

import sys
from importlib.util import find_spec
from pathlib import Path

BAD_USAGE = 2
"""The command's exit code for what the caller can mend."""


def misplaced() -> str:
    """Which of our packages another hides, and how to mend that; empty where all are ours."""
    home = Path(__file__).resolve().parents[1]
    for name in ("models", "topologies", "solver"):
        origin = (spec := find_spec(name)) and spec.origin
        if not origin or Path(origin).resolve().parents[1] != home:
            found = f"is {origin}" if origin else "is missing"
            return (
                f"the package {name!r} {found}, but ours is in {home}: something of that name comes first on "
                "Python's path; run in another directory, or in a virtual environment of its own"
            )
    return ""


def refuse_shadowed_packages() -> None:
    """Exit with one line on standard error where another package hides one of ours."""
    if (reason := misplaced()) and sys.stderr is not None:
        print("error:", reason, file=sys.stderr)
    if reason:
        raise SystemExit(BAD_USAGE)
