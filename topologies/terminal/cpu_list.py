"""A CPU list as rich prints it: where it is too long for its place it goes on below, after a comma."""

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.text import Text

from models import format_cpuset


class CPUList:
    """Kernel list of the CPUs. No number and no range is ever broken."""

    def __init__(self, cpus: Iterable[int], style: str = "") -> None:
        self.text, self.style = format_cpuset(cpus), style

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        parts = self.text.split(",")
        return Measurement(max(map(len, parts)) + (len(parts) > 1), len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text("\n".join(self._lines(options.max_width)), self.style)

    def _lines(self, width: int) -> Iterator[str]:
        line = ""
        for part in self.text.replace(",", ",\n").split("\n"):
            if line and len(line) + len(part) > width:
                yield line
                line = ""
            line += part
        yield line
