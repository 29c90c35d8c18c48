"""Pictures of one-shot quality: by metric, and by machine."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.pictures.style import BLUE, ORANGE, SKY, footnote, headline, label_bars, save

WORDS = {
    "unevenness": "less even shares",
    "numa_nodes": "more NUMA nodes",
    "sockets": "more sockets",
    "numa_distance": "NUMA nodes farther apart",
    "core_types": "more core types",
    "cores": "more cores",
    "l3_caches": "more L3 caches",
    "numa_leftover": "more left over in NUMA nodes",
    "numa_balance": "NUMA nodes less balanced",
    "l3_leftover": "more left over in L3 caches",
    "split_cores": "more split cores",
}
OPTIONS = {"plain": ("no option", BLUE), "prefer_l3": ("with L3 preference", SKY)}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """``quality-metrics`` and ``quality-machines``."""
    return [_metrics(results, folder), _machines(results, folder)]


def _metrics(results: dict[str, Any], folder: Path) -> Path:
    figure, panels = plt.subplots(1, 2, figsize=(11, 5.2), sharex=True)
    for axes, policy in zip(panels, ("packed", "distributed"), strict=True):
        rows = {row["option"]: row for row in results["rows"] if row["policy"] == policy}
        _panel(axes, policy, rows)
    panels[1].legend(loc="upper right")
    headline(
        figure,
        "How often the kubelet's greedy takes more than the optimum",
        "Share of requests in which each metric is above the optimum. 0 would be perfect; shorter is better.",
    )
    settings = results["settings"]
    footnote(
        figure, results, f"{settings['machines']} machines, {settings['sets']} seeded sets of free CPUs each."
    )
    figure.tight_layout(rect=(0, 0.04, 1, 0.86))
    return save(figure, folder, "quality-metrics")


def _panel(axes: Axes, policy: str, rows: dict[str, Any]) -> None:
    names = [name for name in WORDS if name in rows["plain"]["metrics"]]
    for offset, (option, (label, colour)) in zip((-0.2, 0.2), OPTIONS.items(), strict=True):
        shares = [100 * rows[option]["metrics"][name]["share"] for name in names]
        places = [position + offset for position in range(len(names))]
        label_bars(axes, axes.barh(places, shares, height=0.38, color=colour, label=label))
    wrong = 100 * rows["plain"]["wrong"]
    axes.set_title(f"{policy}: {wrong:.0f} % not optimal")
    axes.set_yticks(range(len(names)), [WORDS[name] for name in names])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("% of requests")


def _machines(results: dict[str, Any], folder: Path) -> Path:
    shares = results["by_machine"]
    names = sorted(shares, key=lambda name: shares[name]["packed"])
    figure, axes = plt.subplots(figsize=(9, 1.8 + 0.27 * len(names)))
    for offset, policy, colour in ((0.2, "packed", BLUE), (-0.2, "distributed", ORANGE)):
        widths = [100 * shares[name].get(policy, 0.0) for name in names]
        places = [position + offset for position in range(len(names))]
        axes.barh(places, widths, height=0.38, color=colour, label=policy)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("% of requests for which greedy uses more NUMA nodes than needed")
    axes.legend(loc="lower right")
    headline(
        figure,
        "On which machines the kubelet's greedy wastes NUMA nodes",
        "Machines with several NUMA nodes; no option, L3 preference and whole cores together. Shorter is better.",
    )
    footnote(figure, results, f"{results['settings']['sets']} seeded sets of free CPUs a machine.")
    figure.tight_layout(rect=(0, 0.02, 1, 1 - 0.75 / figure.get_figheight()))
    return save(figure, folder, "quality-machines")
