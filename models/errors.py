"""The errors of the product: bad input, infeasible, defect. Each carries its data."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from models.allocation import Infeasible


LONGEST_KEY = 64
"""Characters of an unknown key in which a known one is looked for."""


class CpusatError(Exception):
    """Root of all errors that callers are meant to catch."""


class BadInputError(CpusatError):
    """What was handed in cannot be used.

    ``file`` is where it came from (a path, a catalog name, ``<stdin>``), ``place`` the spot in it (a line, a
    dotted path, an option), ``reason`` what is wrong and what would be right. File and place may be empty.
    """

    def __init__(self, reason: str, *, place: str = "", file: str = "") -> None:
        self.reason, self.place, self.file = reason, place, file
        super().__init__(": ".join(part for part in (file, place, reason) if part))

    def within(self, file: str) -> "BadInputError":
        """The same error, naming the file it came from unless it names one already."""
        return BadInputError(self.reason, place=self.place, file=self.file or file)

    @classmethod
    def from_pydantic(
        cls, error: ValidationError, *, file: str = "", known: Iterable[str] = ()
    ) -> "BadInputError":
        """The first problem that pydantic found, with its dotted path as the place.

        ``known``: keys that there are, one of which an unknown one may have been meant to be.
        """
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        first = problems[0]
        place = ".".join(str(step) for step in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            reason = "unknown key" + _meant(str(first["loc"][-1]), known)
        others = len(problems) - 1
        more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
        return cls(reason + more, place=place, file=file)


def _meant(key: str, known: Iterable[str]) -> str:
    """The known key that is closest to the one given, whatever its case and word breaks."""
    plain = {_plain(name): name for name in known}
    close = get_close_matches(_plain(key[:LONGEST_KEY]), plain, n=1)
    return f"; is it {plain[close[0]]}?" if close else ""


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


class InfeasibleError(CpusatError):
    """No allocation meets the rules; ``infeasible`` says which rules clash and what would fit."""

    def __init__(self, infeasible: "Infeasible") -> None:
        self.infeasible = infeasible
        super().__init__(str(infeasible))


class UnknownError(CpusatError):
    """Neither an allocation nor a proof that there is none was found in time."""


class DefectError(CpusatError):
    """Our own answer failed our own check: a bug, never the caller's mistake."""
