"""Pictures of churn: metrics against occupancy, and over time."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pictures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    footnote,
    headline,
    save,
)

COLOURS = {
    "random": (GREY, ":"),
    "first fit": (GREY, "--"),
    "kubelet": (RED, "-"),
    "kubelet, L3": (ORANGE, "-"),
    "kubelet, hints": (PINK, "-"),
    "optimal": (BLUE, "-"),
    "optimal, loose": (SKY, "--"),
    "fullest node": (GREEN, "-"),
    "look-ahead": (BLACK, "-"),
}
"""Allocators that are drawn; what the kubelet does in warm colours, ours in cold ones."""


class Panel(NamedTuple):
    """A metric, what it means in words, and what it is multiplied with."""

    metric: str
    title: str
    factor: float = 1.0


PANELS = {
    "any": (
        Panel("fewest_numa", "claims on the fewest NUMA nodes, %\n(more is better)", 100),
        Panel("extra_l3s", "L3s a claim spans beyond the fewest\n(less is better)"),
        Panel("split_cores", "cores shared or partly free\n(less is better, log scale)"),
        Panel("free_numa_nodes", "NUMA nodes free as a whole\n(more is better)"),
        Panel("largest_on_numa", "largest claim that fits one NUMA node, CPUs\n(more is better)"),
        Panel("largest_on_l3", "largest claim that fits one L3, CPUs\n(more is better)"),
    ),
    "one-node": (
        Panel("refused_cpus", "CPUs refused, % of those asked for\n(less is better)", 100),
        Panel("refused", "claims refused, %\n(less is better)", 100),
        Panel("occupancy", "CPUs held, % of the machine\n(more is better)", 100),
        Panel("extra_l3s", "L3s a claim spans beyond the fewest\n(less is better)"),
        Panel("split_cores", "cores shared or partly free\n(less is better, log scale)"),
        Panel("largest_on_numa", "largest claim that fits one NUMA node, CPUs\n(more is better)"),
    ),
}
HEADLINES = {
    "any": "A node under churn, claims may lie anywhere",
    "one-node": "A node under churn, a claim that one NUMA node can hold gets one or is refused",
}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """A picture per machine, mix and rule against occupancy, and one over time."""
    keys = dict.fromkeys((row["machine"], row["mix"], row["rule"]) for row in results["rows"])
    return [_curves(results, folder, *key) for key in keys] + [_over_time(results, folder, *next(iter(keys)))]


def _name(*words: str) -> str:
    return "-".join(["churn", *(re.sub("[^a-z0-9]+", "-", word) for word in words)])


def _rows(results: dict[str, Any], machine: str, mix: str, rule: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in COLOURS}
    for row in results["rows"]:
        if (row["machine"], row["mix"], row["rule"]) == (machine, mix, rule) and row["allocator"] in found:
            found[row["allocator"]].append(row)
    if [row["means"] for row in found["kubelet, hints"]] == [row["means"] for row in found["kubelet"]]:
        del found["kubelet, hints"]  # where no claim is larger than a NUMA node and each must lie on one
    return {name: sorted(rows, key=lambda row: row["occupancy"]) for name, rows in found.items() if rows}


def _curves(results: dict[str, Any], folder: Path, machine: str, mix: str, rule: str) -> Path:
    figure, grid = plt.subplots(2, 3, figsize=(13, 8))
    rows = _rows(results, machine, mix, rule)
    for axes, panel in zip(grid.flat, PANELS[rule], strict=True):
        for name, each in rows.items():
            _curve(axes, panel, name, each)
        axes.set_title(panel.title)
        axes.set_xlabel("CPUs held if claims may lie anywhere, % of the machine")
        if panel.metric == "split_cores":
            axes.set_yscale("symlog", linthresh=1)  # there may be none at all
            axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    bands = f"Bands: 95 % confidence of the difference to {results['settings']['against']}."
    _finish(figure, results, HEADLINES[rule], f"{machine}, mix of sizes: {mix}. {bands}")
    return save(figure, folder, _name(machine, mix, rule))


def _curve(axes: Axes, panel: Panel, name: str, rows: list[Any]) -> None:
    colour, line = COLOURS[name]
    places = [100 * row["occupancy"] for row in rows]
    values = [panel.factor * row["means"][panel.metric][0] for row in rows]
    widths = [panel.factor * row["against"].get(panel.metric, (0, 0))[1] for row in rows]
    low = [max(0, value - width) for value, width in zip(values, widths, strict=True)]
    high = [value + width for value, width in zip(values, widths, strict=True)]
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, values, line, color=colour, label=name, marker="o", markersize=3)


def _finish(figure: Figure, results: dict[str, Any], title: str, below: str) -> None:
    headline(figure, title, below)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    height = figure.get_figheight()
    figure.legend(handles, labels, loc="lower center", ncols=5, bbox_to_anchor=(0.5, 0.22 / height), fontsize=9)
    seeds, arrivals = results["settings"]["seeds"], results["settings"]["arrivals"]
    text = f"Means of {seeds} traces of {arrivals} claims, the same for all. kubelet: its static policy alone."
    footnote(figure, results, text)
    figure.tight_layout(rect=(0, 0.7 / height, 1, 1 - 0.75 / height))


def _over_time(results: dict[str, Any], folder: Path, machine: str, mix: str, rule: str) -> Path:
    rows = _rows(results, machine, mix, rule)
    occupancies = sorted({row["occupancy"] for each in rows.values() for row in each})
    occupancy = occupancies[len(occupancies) // 2]
    figure, axes = plt.subplots(figsize=(11, 5.2))
    for name, each in rows.items():
        colour, line = COLOURS[name]
        [values] = (row["largest_on_numa_by_period"] for row in each if row["occupancy"] == occupancy)
        claims = [(period + 0.5) * results["settings"]["arrivals"] / len(values) for period in range(len(values))]
        axes.plot(claims, values, line, color=colour, label=name)
    axes.set_xlabel("claims that have arrived")
    axes.set_ylabel("CPUs")
    axes.set_title(f"largest claim that would fit one NUMA node, {100 * occupancy:.0f} % of CPUs held")
    _finish(figure, results, "What would still fit, as a node ages", f"{machine}, mix of sizes: {mix}.")
    return save(figure, folder, _name(machine, mix, "time"))
