"""Standard output and error as a shell hands them over: closed, full, or of an encoding that lacks characters."""

import atexit
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

HIGHEST = 2
"""The number of standard error, above those of standard input and output."""


def prepare() -> None:
    """Escape characters that the encoding lacks. Raises ``OSError`` if standard output is closed.

    Descriptors of closed streams lead to ``/dev/null`` from now on: child processes would take whatever else was
    opened there for their standard error.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= HIGHEST:
        os.set_inheritable(handle, True)
    os.close(handle)
    if sys.stdout is None:
        raise OSError("standard output is closed; redirect it (to /dev/null to discard it)")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    atexit.unregister(silence)
    atexit.register(silence)


def silence() -> None:
    """Lead a stream that takes no more to ``/dev/null``.

    The interpreter writes out what is left as it ends. If it cannot, it prints two lines of its own and ends with
    exit code 120, whatever the program's was.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def writing(*, error: bool) -> Iterator[TextIO | None]:
    """Standard output, or standard error, as far as that takes anything; ``None`` for one that is closed.

    Raises ``OSError`` for standard output alone.
    """
    try:
        yield sys.stderr if error else sys.stdout
    except OSError:
        if not error:
            raise
        silence()


def say(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Write a line to standard output, or error.

    Not ``click.echo``, which writes UTF-8 to a stream that is to be ASCII.
    """
    with writing(error=error) as stream:
        if stream is not None:
            stream.write(text + end)
            stream.flush()


def printable(text: str, instead: str = "?") -> str:
    """The text without characters that a terminal would act on, each replaced by ``instead``."""
    return "".join(char if char.isprintable() else instead for char in text)


def flush() -> None:
    """Write out what standard output still holds. Raises ``OSError``."""
    if sys.stdout is not None:
        sys.stdout.flush()
