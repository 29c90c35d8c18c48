"""Pictures of kept results. Needs the extra ``bench`` (matplotlib)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pictures import churn, joint, quality, speed
from models import BadInputError

Results = dict[str, Any]
"""What ``--output json`` of a command printed."""

PAINTERS: dict[str, Callable[[Results, Path], list[Path]]] = {
    "quality": quality.draw,
    "churn": churn.draw,
    "joint": joint.draw,
    "speed": speed.draw,
}


def draw(path: Path, folder: Path) -> list[Path]:
    """Draw the results in the file into the folder. Raises ``BadInputError`` when the file holds no results."""
    try:
        results = json.loads(path.read_text())
        painter = PAINTERS[results["kind"]]
    except (ValueError, KeyError, TypeError):
        kinds = ", ".join(PAINTERS)
        raise BadInputError(f"not what --output json of {kinds} prints", file=str(path)) from None
    return painter(results, folder)
