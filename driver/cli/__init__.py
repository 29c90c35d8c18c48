"""The command ``cpusat-driver``: ``run``, which may be left out, and ``state``."""

import importlib
from typing import Any

import click

from solver.cli import VERSION, failures
from solver.cli.streams import prepare

SUBCOMMANDS = {
    "run": "Serve the kubelet and the container runtime of this node; the default.",
    "state": "Show who holds which CPUs.",
}
"""Name, which is that of the module in this package too, and what ``--help`` says of it."""

HELP = ("-h", "--help", "--version")


class Program(click.Group):
    """A group whose subcommands are imported to be run, with ``run`` where none is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all subcommands."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options alone are those of ``run``: DaemonSets of dra-driver-cpu have no subcommand."""
        with failures():
            prepare()
            named = args and (args[0] in HELP or not args[0].startswith("-"))
            return super().parse_args(ctx, args if named else ["run", *args])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the signature is click's
        """Run the subcommand."""
        with failures():
            return super().invoke(ctx)


main = Program(
    "cpusat-driver",
    params=[VERSION],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Give pods the CPUs that their ResourceClaims ask for.

    Exit codes: 0 ended as asked, 2 bad configuration or usage, 3 a defect of cpusat.
    """,
)
