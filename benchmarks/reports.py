"""Tables of quality, churn and joint results for the terminal, and what is kept of them as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from benchmarks import churn, joint, quality
from benchmarks.cases import Case
from benchmarks.provenance import provenance
from benchmarks.spread import Excess

SHARES = ("policy", "option", "cases", "greedy finds nothing", "proven %", "greedy not optimal %", "dominated %")
EXCESS = ("policy", "option", "metric", "greedy above optimum %", "by: median / p95 / worst")
JOINT = (
    "requests",
    "way",
    "placed jointly",
    "proven %",
    "not placed %",
    "worse %",
    "better %",
    "joint ms, median / p95",
    "more NUMA nodes %",
    "more L3s %",
)
CHURN: dict[str, tuple[str, int]] = {
    "refused": ("refused\n%", 100),
    "refused_cpus": ("refused\nCPUs %", 100),
    "fewest_numa": ("fewest\nNUMA %", 100),
    "fewest_numa_now": ("fewest\nnow %", 100),
    "extra_l3s": ("L3s too\nmany", 1),
    "split_cores": ("split\ncores", 1),
    "free_numa_nodes": ("whole free\nNUMA", 1),
    "free_l3s": ("whole free\nL3s", 1),
    "largest_on_numa": ("would fit\none NUMA", 1),
    "largest_on_l3": ("would fit\none L3", 1),
    "occupancy": ("held\n%", 100),
}
"""Heading of each metric of churn, and what it is multiplied with."""


def keep(kind: str, settings: Mapping[str, object], **parts: object) -> None:
    """Print results as JSON, with where and with what they were made."""
    results = {"kind": kind, "made": provenance(), "settings": settings, **parts}
    click.echo(json.dumps(results, default=_plain, separators=(",", ":")))


def _plain(value: object) -> object:
    """Dataclasses as dictionaries, floats in them rounded."""
    return _rounded(asdict(value))  # type: ignore[call-overload]


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def _show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> None:
    table = Table(title=title)
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position < texts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=170).print(table)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _excess(found: Excess) -> str:
    return f"{found.median:g} / {found.p95:g} / {found.worst}" if found.share else ""


def show_quality(rows: Sequence[quality.QualityRow]) -> None:
    """Two tables: shares by policy and option; excess by metric."""
    shares = (
        [row.policy, row.option, str(row.cases), str(row.nothing)]
        + [_percent(share) for share in (row.proven, row.wrong, row.dominated)]
        for row in rows
    )
    _show("the kubelet's greedy beside the optimum", SHARES, shares, texts=2)
    metrics = (
        [row.policy, row.option, name, _percent(found.share), _excess(found)]
        for row in rows
        for name, found in row.metrics.items()
        if found.share
    )
    _show("by metric", EXCESS, metrics, texts=3)


def show_cases(cases: Sequence[Case]) -> None:
    """Commands to paste, one a line."""
    click.echo("\nGreedy wastes a whole NUMA node here (paste to see):")
    for case in cases:
        click.echo(f"# {case.optimum['numa_nodes']} NUMA nodes would do, greedy uses {case.greedy['numa_nodes']}")
        click.echo(case.command)


def show_joint(rows: Sequence[joint.JointRow]) -> None:
    """One table: each way against solving together."""
    lines = (
        [row.kind, row.way, f"{row.placed}/{row.batches}"]
        + [_percent(share) for share in (row.proven, row.unplaced, row.worse, row.better)]
        + [f"{row.median_ms:.0f} / {row.p95_ms:.0f}", *_numa_and_l3(row)]
        for row in rows
    )
    _show("requests one by one beside all together", JOINT, lines, texts=2)


def _numa_and_l3(row: joint.JointRow) -> list[str]:
    return [
        _percent(row.metrics[name].share) if name in row.metrics else "" for name in ("numa_nodes", "l3_caches")
    ]


def show_churn(rows: Sequence[churn.ChurnRow]) -> None:
    """A table per setting; + and - mark what is better and worse than the baseline beyond chance."""
    for setting in dict.fromkeys(row.setting for row in rows):
        title = f"{setting.machine}, mix {setting.mix}, rule {setting.rule}, {setting.occupancy:.0%} held"
        lines = ([row.allocator, *(_mean(row, name) for name in CHURN)] for row in rows if row.setting == setting)
        _show(title, ["allocator", *(heading for heading, _ in CHURN.values())], lines, texts=1)


def _mean(row: churn.ChurnRow, metric: str) -> str:
    factor = CHURN[metric][1]
    mean = row.means[metric]
    return f"{factor * mean.value:.3g}±{factor * mean.half:.1g} {_mark(row, metric)}"


def _mark(row: churn.ChurnRow, metric: str) -> str:
    against = row.against.get(metric)
    if against is None or not against.differs:
        return " "
    return "+" if (against.value > 0) == (metric in churn.BETTER_IS_MORE) else "-"
