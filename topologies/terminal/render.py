"""Printing by way of rich."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from topologies.terminal.streams import writing

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDLESS = 10**6
"""The width where output is not a terminal: no line of a table is broken, so that programs can read it."""

NARROWEST, USUAL = 20, 80
"""A ``COLUMNS`` below the first is taken for a mistake, since no drawing fits; the second is used instead."""


def render(*what: "RenderableType", error: bool = False) -> None:
    """Print to standard output (or error, if it is open), as wide as the terminal if it is one.

    By way of a string: a broken pipe is then ours to handle, and no line ends in blanks.
    """
    with writing(error=error) as stream:
        if stream is not None:
            stream.write(_drawn(what, stream, error=error))


def _drawn(what: "Sequence[RenderableType]", stream: TextIO, *, error: bool) -> str:
    from rich.console import Console
    from rich.segment import Segments

    console = Console(highlight=False, markup=False, stderr=error)
    if console.width < NARROWEST:
        console.width = USUAL
    options = console.options if stream.isatty() else console.options.update(width=ENDLESS)
    with console.capture() as capture:
        for each in what:
            console.print(Segments(console.render(each, options)), end="", crop=False)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())
