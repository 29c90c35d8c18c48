"""Printing by way of rich."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def render(*what: "RenderableType", error: bool = False) -> None:
    """Print to standard output (or error), as wide as the terminal.

    By way of a string: a broken pipe is then ours to handle, and no line ends in blanks.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, stderr=error)
    with console.capture() as capture:
        for each in what:
            console.print(each)
    stream = sys.stderr if error else sys.stdout
    stream.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))
