"""Pictures of speed: how time grows, how each machine stands to its target, when proofs end, cold starts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from benchmarks.pictures.style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, SKY, footnote, headline, save
from benchmarks.speed import WITHIN_MS, SpeedRow
from benchmarks.speed_points import LARGE, SERIES
from benchmarks.speed_tables import targets_of

POLICIES = ("packed", "distributed")


class EngineStyle(NamedTuple):
    """How an engine is drawn, and what it is called in a picture."""

    label: str
    colour: str


ENGINES = {
    "plain": EngineStyle("plain CP-SAT model", RED),
    "cpsat": EngineStyle("our CP-SAT model alone", ORANGE),
    "auto": EngineStyle("cpusat (auto)", BLUE),
    "greedy": EngineStyle("greedy, first answer", GREEN),
}
AXES = ("cpus", "numa", "l3", "requests")


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """``speed-scaling``, ``speed-targets``, ``speed-proofs`` and ``speed-cold``, as far as they were measured."""
    rows = [SpeedRow(**row) for row in results["rows"]]
    drawn = (_scaling(rows, results), _targets(rows, results), _proofs(rows, results), _cold(results))
    names = ("scaling", "targets", "proofs", "cold")
    return [save(figure, folder, f"speed-{name}") for name, figure in zip(names, drawn, strict=True) if figure]


def _scaling(rows: list[SpeedRow], results: dict[str, Any]) -> Any:  # noqa: ANN401 - a figure or None
    found = [series for series in AXES if any(row.series == series for row in rows)]
    if not found:
        return None
    figure, panels = plt.subplots(
        2, len(found), figsize=(1 + 4 * len(found), 8.4), sharey=True, sharex="col", squeeze=False
    )
    for line, policy in zip(panels, POLICIES, strict=True):
        for axes, series in zip(line, found, strict=True):
            _scaling_panel(axes, [row for row in rows if row.policy == policy], series)
            axes.set_title(f"{policy} requests")
        line[0].set_ylabel("milliseconds (log scale)")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(handles), bbox_to_anchor=(0.5, 0.025))
    headline(
        figure,
        "How the time of a solve grows with the machine, and with requests",
        "Medians, with bands from the 10th to the 90th percentile. Hollow: most solves ended without proof.",
    )
    plain = results["settings"]["plain_limit"]
    footnote(figure, results, f"Our engines stop at 1 s, the plain model at {plain:g} s, proven or not.")
    figure.tight_layout(rect=(0, 0.06, 1, 0.91))
    return figure


def _scaling_panel(axes: Axes, rows: list[SpeedRow], series: str) -> None:
    mine = [row for row in rows if row.series == series]
    beside = [row for row in rows if row.engine == "plain" and series == "cpus" and isinstance(row.at, int)]
    for name, engine in ENGINES.items():
        _line(axes, engine, [row for row in (*mine, *beside) if row.engine == name])
    empty = [row for row in mine if row.engine == "auto"]
    axes.plot(_at(empty), [row.empty_ms for row in empty], ":", color=GREY, lw=2, label="an empty CP-SAT solve")
    axes.set(xscale="log", yscale="log", xlabel=SERIES[series].title)
    axes.xaxis.set_major_locator(FixedLocator(_at(empty)))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def _line(axes: Axes, engine: EngineStyle, rows: list[SpeedRow]) -> None:
    if not rows:
        return
    low, high = [row.p10_ms for row in rows], [row.p90_ms for row in rows]
    axes.fill_between(_at(rows), low, high, color=engine.colour, alpha=0.15, lw=0)
    axes.plot(
        _at(rows), [row.median_ms for row in rows], "o-", color=engine.colour, label=engine.label, ms=4, lw=2
    )
    unproven = [row for row in rows if row.engine != "greedy" and 2 * row.proven < row.solves]
    axes.plot(
        _at(unproven), [row.median_ms for row in unproven], "o", color=engine.colour, mfc="white", ms=7, mew=1.5
    )


def _at(rows: Iterable[SpeedRow]) -> list[float]:
    return [float(row.at) for row in rows]


def _targets(rows: list[SpeedRow], results: dict[str, Any]) -> Any:  # noqa: ANN401 - a figure or None
    mine = [row for row in rows if row.series == "catalog" and row.engine == "auto"]
    if not mine:
        return None
    names = list(dict.fromkeys(row.machine for row in mine))
    figure, panels = plt.subplots(1, 2, figsize=(12, 2.2 + 0.24 * len(names)), sharey=True)
    for axes, policy in zip(panels, reversed(POLICIES), strict=True):
        _targets_panel(axes, [row for row in mine if row.policy == policy])
    panels[0].set_yticks(range(len(names)), [_short(name) for name in names], fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=len(handles), bbox_to_anchor=(0.5, 0.3 / figure.get_figheight())
    )
    headline(
        figure,
        "Time to a proven optimum on each machine",
        "As multiples of an empty CP-SAT solve of the same minutes. Red: a target is missed.",
    )
    footnote(figure, results, f"{max(row.solves for row in mine)} seeded free sets a machine and policy.")
    figure.tight_layout(rect=(0, 0.75 / figure.get_figheight(), 1, 1 - 0.75 / figure.get_figheight()))
    return figure


def _targets_panel(axes: Axes, rows: list[SpeedRow]) -> None:
    places = range(len(rows))
    axes.barh(places, [row.ratio for row in rows], color=[_verdict(row) for row in rows], height=0.66)
    axes.plot([row.ratio_p99 for row in rows], places, "D", color=BLACK, ms=4, label="99th percentile")
    median, p99 = targets_of(next(row for row in rows if row.machine != LARGE))
    axes.axvline(median, color=BLUE, lw=1.5, ls="--", label="target of the median (bar)")
    axes.axvline(p99, color=BLACK, lw=1.2, ls="--", label="target of the 99th percentile")
    for place, row in enumerate(rows):
        if row.machine == LARGE:
            axes.plot([targets_of(row)[0]] * 2, [place - 0.5, place + 0.5], color=BLUE, lw=3)
    axes.set_title(f"{rows[0].policy}: at most {median:g} x, 99 % at most {p99:g} x")
    axes.set_xlabel("x an empty solve")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _verdict(row: SpeedRow) -> str:
    median, p99 = targets_of(row)
    return SKY if row.ratio <= median and row.ratio_p99 <= p99 else RED


def _short(machine: str) -> str:
    return "1,024 CPUs on 32 NUMA nodes (target: thick line)" if machine == LARGE else machine


def _proofs(rows: list[SpeedRow], results: dict[str, Any]) -> Any:  # noqa: ANN401 - a figure or None
    series = [name for name in ("cpus", "numa", "l3", "occupancy") if any(row.series == name for row in rows)]
    if not series:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    for axes, policy in zip(panels, POLICIES, strict=True):
        for offset, name in ((-0.2, "auto"), (0.2, "cpsat")):
            mine = [r for r in rows if (r.policy, r.engine) == (policy, name) and r.series in series]
            shares = _within(mine)
            bars = axes.bar(
                [place + offset for place in range(len(shares))], shares, 0.38, color=ENGINES[name].colour
            )
            bars.set_label(ENGINES[name].label)
            axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=9)
        axes.set_xticks(range(len(WITHIN_MS)), [f"{ms} ms" for ms in WITHIN_MS])
        axes.set_title(f"{policy} requests")
        axes.set_ylim(0, 108)
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("% of solves")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=2, bbox_to_anchor=(0.5, 0.05))
    headline(
        figure,
        "How many solves have proven their optimum, and how soon",
        "Cumulative: solves that end by proof within so many milliseconds. Higher is better.",
    )
    footnote(figure, results, "Single requests on synthetic machines of 16 to 1,024 CPUs, the same for both.")
    figure.tight_layout(rect=(0, 0.12, 1, 0.85))
    return figure


def _within(rows: Iterable[SpeedRow]) -> list[float]:
    found = list(rows)
    solves = sum(row.solves for row in found)
    return [100 * sum(row.within[i] for row in found) / max(1, solves) for i in range(len(WITHIN_MS))]


def _cold(results: dict[str, Any]) -> Any:  # noqa: ANN401 - a figure or None
    cold = results["cold"]
    if not cold:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True)
    names = [row["what"] + (f", {row['cpus']:,} CPUs" if row["cpus"] else "") for row in cold]
    colours = [BLUE if row["cpus"] else GREY for row in cold]
    for axes, key, unit in zip(panels, ("median_s", "peak_mb"), ("seconds", "MB resident, at most"), strict=True):
        bars = axes.barh(range(len(cold)), [row[key] for row in cold], color=colours, height=0.66)
        axes.bar_label(bars, fmt="%.2f" if key == "median_s" else "%.0f", padding=3, fontsize=9)
        axes.set_xlabel(unit)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(cold)), names)
    panels[0].invert_yaxis()
    headline(
        figure,
        "The command from a cold start",
        "Blue: the whole command, from start to exit. Grey: nothing but imports that it cannot do without.",
    )
    footnote(figure, results, f"Medians of {cold[0]['starts']} starts.")
    figure.tight_layout(rect=(0, 0.05, 1, 0.85))
    return figure
