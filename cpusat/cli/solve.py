"""``cpusat solve``, or ``solve``: choose the CPUs of one or more requests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cpusat.cli.options import ENGINE, MACHINE, REQUEST, SECTIONS
from topologies.terminal.program import SOURCE, VERSION, Failure

if TYPE_CHECKING:
    from models import Claim, Result, Topology

EXIT = {"optimal": 0, "feasible": 0, "infeasible": 1, "unknown": 4}


class Solve(click.Command):
    """The command, with its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        help_option = self.get_help_option(ctx)
        for title, options in {**SECTIONS, "Help": (VERSION, help_option)}.items():
            with formatter.section(title):
                formatter.write_dl([record for each in options if each and (record := each.get_help_record(ctx))])


@dataclass(frozen=True)
class Task:
    """What was asked on the command line, read and checked."""

    topology: "Topology"
    claim: "Claim"
    engine: dict[str, Any]

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Task":
        """Read the sources and apply the options. Raises ``BadInputError``."""
        from cpusat.cli.claims import constraint, read_claim, wanted

        claim = None if given["claims"] is None else read_claim(given["claims"])
        topology = _topology(**{name: given[name] for name in _names(MACHINE)})
        options = {name: given[name] for name in _names(REQUEST)} | {"strict": given["strict"] or None}
        rules = [constraint(kind, text) for kind in ("match", "distinct") for text in given[kind]]
        engine = {name: given[name] for name in _names(ENGINE)}
        return cls(topology, wanted(topology, claim, options, rules), engine)

    def solve(self, **instead: str) -> "Result":
        """Ask the engine, or another ``instead``."""
        from solver.engine import solve

        claim = self.claim
        return solve(self.topology, claim.requests, constraints=claim.constraints, **{**self.engine, **instead})


def run(**given: Any) -> None:  # noqa: ANN401 - the options' values
    """Choose which CPUs of a machine one or more requests get.

    Exit codes: 0 placed, 1 infeasible, 2 bad input or usage, 3 a defect, 4 unknown. Only the answer goes to
    standard output; notes and reasons go to standard error.
    """
    from cpusat.cli.answer import Printout

    _refuse_contradictions(given)
    task = Task.of(given)
    result = task.solve()
    greedy = task.solve(engine="greedy") if given["compare"] and result.allocations else None
    Printout(task.topology, task.claim, result, greedy).say(given["output"], explain=given["explain"])
    click.get_current_context().exit(EXIT[result.status])


def _refuse_contradictions(given: dict[str, Any]) -> None:
    refusals = {
        "--topology and --claims cannot both be standard input": given["topology"] == given["claims"] == "-",
        "--free and --held contradict each other; give one": given["free"] is not None and given["held"],
        "--compare needs an exact engine; leave out --engine greedy": (
            given["compare"] and given["engine"] == "greedy"
        ),
        "--compare needs time for an exact engine; leave out --time-limit 0": (
            given["compare"] and given["time_limit"] == 0
        ),
    }
    for reason, applies in refusals.items():
        if applies:
            raise Failure(reason)


def _topology(topology: str, reserved: str | None, held: tuple[str, ...], free: str | None) -> "Topology":
    from topologies.load import load
    from topologies.overlay import overlaid, with_free

    machine = load(topology)
    if free is not None:
        machine = machine.model_copy(update={"held": {}})
    if reserved is not None or held:
        machine = overlaid(machine, reserved, held)
    return machine if free is None else with_free(machine, free)


def _names(options: tuple[click.Option, ...]) -> list[str]:
    return [str(option.name) for option in options]


command = Solve(
    "solve",
    params=[*(option for section in SECTIONS.values() for option in section), VERSION],
    callback=run,
    help=run.__doc__,
    epilog=SOURCE,
)
