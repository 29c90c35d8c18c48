"""Standard output and error as a shell may hand them over: closed, or of an encoding that lacks characters."""

import io
import sys


def prepare() -> None:
    """Show characters that an encoding lacks as escapes; ``OSError`` where there is no standard output."""
    if sys.stdout is None:
        raise OSError("standard output is closed; open it, to /dev/null if nothing is to be shown")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Write to standard output, or error if it is open.

    Not ``click.echo``, which writes UTF-8 to a stream that is to be ASCII.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is not None:
        stream.write(text + end)
        stream.flush()


def printable(text: str, instead: str = "?") -> str:
    """The text without characters that a terminal would act on, each replaced by ``instead``."""
    return "".join(char if char.isprintable() else instead for char in text)
