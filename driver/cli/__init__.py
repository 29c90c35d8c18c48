"""The command ``cpusat-driver``: ``run``, which may be left out, ``check`` and ``state``."""

import click

from topologies.terminal.program import VERSION, Program

SUBCOMMANDS = {
    "run": "Serve the kubelet and the container runtime of this node; the default.",
    "check": "Tell what is wrong with a configuration before it is rolled out.",
    "state": "Show who holds which CPUs.",
}
HELP = ("-h", "--help", "--version")


class DriverProgram(Program):
    """``run`` where no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options alone are those of ``run``: DaemonSets of dra-driver-cpu have no subcommand."""
        named = args and (args[0] in HELP or not args[0].startswith("-"))
        return super().parse_args(ctx, args if named else ["run", *args])


main = DriverProgram(
    "cpusat-driver",
    __name__,
    SUBCOMMANDS,
    params=[VERSION],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Give pods the CPUs that their ResourceClaims ask for.

    Exit codes: 0 ended as asked, 2 bad configuration or usage, 3 a defect of cpusat.
    """,
)
