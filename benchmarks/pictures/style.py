"""What all pictures have in common: colours that colour-blind readers tell apart, plain axes, a footnote."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

BLUE, SKY, GREEN, ORANGE, RED, PINK, GREY, BLACK = (
    "#0072b2",
    "#56b4e9",
    "#009e73",
    "#e69f00",
    "#d55e00",
    "#cc79a7",
    "#9a9a9a",
    "#222222",
)

plt.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "axes.axisbelow": True,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "legend.frameon": False,
    }
)


def footnote(figure: Figure, results: dict[str, Any], text: str) -> None:
    """A line at the bottom: what was measured, when, at which commit."""
    made = results["made"]
    figure.text(0.01, 0.01, f"{text}  cpusat {made['commit']}, {made['date']}.", fontsize=8, color="#555555")


def headline(figure: Figure, text: str, below: str) -> None:
    """A title that says what is to be seen, and a line on how to read it."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.28 / height, text, fontsize=14, weight="bold", va="center")
    figure.text(0.01, 1 - 0.56 / height, below, fontsize=10, color="#444444", va="center")


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write the picture as PNG, in few colours: a third of the size."""
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
    return path


def label_bars(axes: Axes, bars: Any) -> None:  # noqa: ANN401 - matplotlib's containers are not typed well
    """The percentage at the end of each bar."""
    axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=8)
