"""Prints the result: the answer on standard output, reasons and notes on standard error."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cpusat.cli.compare import Comparison
from cpusat.cli.output import as_claim_config, as_json, as_lines
from models import Claim, Result, Topology
from topologies.terminal.streams import printable, say

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Printout:
    """A result, what it answers, and the greedy result to compare it with if that was asked for."""

    topology: Topology
    claim: Claim
    result: Result
    greedy: Result | None = None

    def say(self, form: str, *, explain: bool) -> None:
        """Print the answer in its form (``table``, ``json``, …), and the reasons for it."""
        for line in self._reasons():
            say(printable(line), error=True)
        if form != "table":
            self._print_plain(form)
        parts = list(self._parts(form, explain=explain))
        if parts:
            from topologies.terminal.render import render

            render(*parts, error=form != "table")

    @property
    def comparison(self) -> Comparison | None:
        """The greedy answer compared with the best, if requested."""
        return None if self.greedy is None else Comparison(self.greedy, self.result)

    def _reasons(self) -> Iterator[str]:
        """Why there is no answer, or which preferences it could not meet."""
        if self.result.infeasible is not None:
            yield f"infeasible: {self.result.infeasible}"
        if self.result.status == "unknown":
            why = (
                "; ".join(self.result.notes)
                or "neither an answer nor a proof that there is none was found in time"
            )
            yield f"unknown: {why}"
        else:
            yield from (f"note: {note}" for note in self.result.notes)

    def _print_plain(self, form: str) -> None:
        whole = {
            "json": lambda: [as_json(self.result, self.comparison)],
            "claim-config": lambda: as_claim_config(self.result),
        }
        for line in whole[form]() if form in whole else as_lines(self.result, form):
            say(line)

    def _parts(self, form: str, *, explain: bool) -> Iterator["RenderableType"]:
        """The parts of the output for people, in order."""
        table, placed = form == "table", bool(self.result.allocations)
        if not (explain or table or self.comparison):
            return
        from cpusat.cli import report

        if table and placed:
            yield from report.answer(self.result)
        if placed and table and self.comparison is None and not (explain and len(self.claim.requests) == 1):
            yield from report.metrics(self.result, self.claim.requests)
        if placed and explain:
            yield from report.meanings(self.result)
        if self.comparison is not None and form != "json":
            yield from report.comparison(self.comparison)
        if placed and (explain or form != "json"):
            yield from report.mixed(self.claim.requests)
        if explain and self.result.infeasible is not None:
            yield from report.clash(self.result.infeasible)
        if explain:
            yield from report.drawing(self.topology, self.result)
