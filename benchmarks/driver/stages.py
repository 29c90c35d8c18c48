"""What Prepare spends its time on, as the driver's own metrics say."""

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

Stages = Mapping[str, tuple[float, float]]
"""By stage, how often and for how many seconds in all."""

_PORT = re.compile(r"metrics and probes are served at port (\d+)")
_SAMPLE = re.compile(r'^cpusat_driver_prepare_stage_seconds_(count|sum)\{stage="(\w+)"\} (\S+)$', re.MULTILINE)


def read_stages(log: Path) -> Stages:
    """So far, of the driver that was started last and writes this log."""
    port = _PORT.findall(log.read_text())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        found = {(what, stage): float(value) for what, stage, value in _SAMPLE.findall(page.read().decode())}
    return {stage: (found["count", stage], found["sum", stage]) for what, stage in found if what == "sum"}


def mean_ms(before: Stages, after: Stages) -> dict[str, float]:
    """Milliseconds that a stage took on average between the two readings."""
    found = {}
    for name, (number, seconds) in after.items():
        earlier, spent = before.get(name, (0.0, 0.0))
        if number > earlier:
            found[name] = 1000 * (seconds - spent) / (number - earlier)
    return found
