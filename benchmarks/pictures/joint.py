"""Picture of joint placement: what becomes of batches that are placed one by one."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.pictures.style import BLUE, GREY, ORANGE, RED, footnote, headline, save

WAYS = {
    "in order": "one by one, in order",
    "largest first": "one by one, largest first",
    "greedy": "kubelet's greedy, in order",
}
PARTS = (("not all placed", RED), ("placed, but worse", ORANGE), ("just as good", BLUE), ("better", GREY))


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """``joint``: a bar per kind of request and way."""
    kinds = list(dict.fromkeys(row["kind"] for row in results["rows"]))
    figure, panels = plt.subplots(len(kinds), 1, figsize=(10, 1.6 + 1.45 * len(kinds)), sharex=True)
    for axes, kind in zip(panels, kinds, strict=True):
        _panel(axes, kind, [row for row in results["rows"] if row["kind"] == kind])
    panels[-1].set_xlabel("% of the batches that can be placed together")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, bbox_to_anchor=(0.5, 0.035))
    headline(
        figure,
        "Several requests: one by one against all together",
        "What becomes of each batch, compared with solving it as one problem.",
    )
    limit = results["settings"]["time_limit"]
    footnote(
        figure, results, f"'better' is possible only where the joint solve ended without proof ({limit:g} s)."
    )
    figure.tight_layout(rect=(0, 0.1, 1, 1 - 0.75 / figure.get_figheight()))
    return [save(figure, folder, "joint")]


def _panel(axes: Axes, kind: str, rows: list[Any]) -> None:
    for place, row in enumerate(rows):
        left = 0.0
        for (label, colour), share in zip(PARTS, _shares(row), strict=True):
            bar = axes.barh(place, 100 * share, left=left, color=colour, label=label if place == 0 else None)
            if share >= 0.04:
                axes.bar_label(bar, [f"{100 * share:.0f} %"], label_type="center", color="white", fontsize=9)
            left += 100 * share
    axes.set_yticks(range(len(rows)), [WAYS[row["way"]] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.grid(visible=False)
    first = rows[0]
    axes.set_title(f"{kind}: {first['placed']} batches, {100 * first['proven']:.0f} % of joint answers proven")


def _shares(row: Any) -> list[float]:  # noqa: ANN401 - a row of the results file
    placed = 1 - row["unplaced"]
    worse, better = placed * row["worse"], placed * row["better"]
    return [row["unplaced"], worse, placed - worse - better, better]
