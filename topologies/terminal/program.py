"""A command line of ours: subcommands that are imported when they are called, and failures in one line each."""

import importlib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from topologies.terminal.streams import flush, prepare, printable, say

if TYPE_CHECKING:
    from models import BadInputError

SOURCE = (
    "SOURCE is a catalog name, a file (topology document, hwloc XML, lscpu output), a directory with a /sys tree, "
    "'host', '-' for standard input, or a description such as 'socket:2 numa:4 l3:2 core:8 cpu:2'."
)
"""What the help of commands that read a machine says about it."""

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes: 128 plus the signal's number, as shells have it."""

LONGEST_PLACE, LONGEST = 200, 400
"""Characters of where an error is, and of its reason: both repeat what was handed in, which may be anything."""


class Failure(click.ClickException):
    """Bad input, as the user sees it: one line on standard error and an exit code."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, " "))

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - the signature is click's
        """Print the line."""
        if file is None:
            say(f"error: {self.message}", error=True)
        else:
            click.echo(f"error: {self.message}", file=file)


class Help(click.ClickException):
    """The help, of a command that does nothing without arguments."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - the signature is click's
        """Print it."""
        say(self.message, error=True)


class NotPlaced(Failure):
    """Infeasible."""

    exit_code = 1


class Defect(Failure):
    """Our own mistake."""

    exit_code = 3


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors into an exit code and one line; unexpected exceptions also print their traceback."""
    try:
        try:
            yield
        finally:
            flush()
    except click.UsageError as error:
        raise _usage(error) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BrokenPipeError as error:
        raise click.exceptions.Exit(BROKEN_PIPE) from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Exit(INTERRUPTED) from error
    except Exception as error:
        raise _failure(error) from error


def _usage(error: click.UsageError) -> click.ClickException:
    """One line in place of click's three; the help that a command without arguments gives stays as it is."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return Help(error.format_message())
    short = _shortened(error.format_message(), LONGEST)
    return Failure(f"{short} See '{error.ctx.command_path.strip()} --help'." if error.ctx else short)


def _failure(error: Exception) -> Failure:
    from models.errors import BadInputError, DefectError, InfeasibleError

    if isinstance(error, BadInputError):
        return Failure(brief(error))
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        return Failure(_shortened(text, LONGEST))
    if isinstance(error, InfeasibleError):
        return NotPlaced(str(error))
    if not isinstance(error, DefectError):
        say("".join(traceback.format_exception(error)), error=True, end="")
    return Defect(f"this is a bug in cpusat, please report it: {type(error).__name__}: {error}")


def brief(error: "BadInputError") -> str:
    """The error in one line of bounded length."""
    parts = (error.file, LONGEST_PLACE), (error.place, LONGEST_PLACE), (error.reason, LONGEST)
    return ": ".join(_shortened(part, most) for part, most in parts if part)


def _shortened(text: str, most: int) -> str:
    """The text without its middle if it is too long: reasons say at their end what would be right."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-(most // 2) + 3 :]}"


class Guarded(click.Group):
    """A group that reports failures in one way: one line on standard error, and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options that stand before the subcommand."""
        with failures():
            prepare()
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the signature is click's
        """Run the subcommand."""
        with failures():
            return super().invoke(ctx)


class Program(Guarded):
    """A group that imports a subcommand only to run it.

    ``subcommands``: what ``--help`` says of each, by its name, which is that of its module in ``package`` too.
    """

    def __init__(self, name: str, package: str, subcommands: Mapping[str, str], **settings: Any) -> None:  # noqa: ANN401
        super().__init__(name, **settings)
        self._package, self._subcommands = package, subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all subcommands."""
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand."""
        if cmd_name not in self._subcommands:
            return None
        command: click.Command = importlib.import_module(f"{self._package}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._subcommands.items()))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        say(f"cpusat {version('cpusat')}")
    except PackageNotFoundError:
        say("cpusat, not installed")
    ctx.exit()


VERSION = click.Option(
    ["--version"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version.",
)
