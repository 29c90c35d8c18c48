"""The command line: ``cpusat`` and its subcommands, which are imported when they are called."""

import sys
from collections.abc import Sequence

from cpusat.shadowing import refuse_shadowed_packages

refuse_shadowed_packages()

from topologies.terminal.program import VERSION, Program  # noqa: E402 - a shadowed package must be named first

SUBCOMMANDS = {
    "solve": "Choose the CPUs of one or more requests.",
    "topology": "List, draw, convert and check machines.",
}

main = Program(
    "cpusat",
    __name__,
    SUBCOMMANDS,
    params=[VERSION],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Choose which CPUs of a machine a Kubernetes workload gets.

    Exit codes: 0 placed, 1 infeasible, 2 bad input or usage, 3 a defect of cpusat, 4 unknown.
    """,
)


def solve_command(args: Sequence[str] | None = None) -> None:
    """Run ``cpusat solve`` under its own name, ``solve``."""
    main(["solve", *(sys.argv[1:] if args is None else args)], prog_name="")
