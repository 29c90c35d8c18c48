"""The errors of the product: bad input, infeasible, defect. Each carries its data."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

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
        """The first problem that pydantic found, with its dotted path as the place, and how many there are more.

        ``known``: keys that there are, one of which an unknown one may have been meant to be.
        """
        first, *others = cls.all_from_pydantic(error, file=file, known=known)
        more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})" if others else ""
        return cls(first.reason + more, place=first.place, file=file)

    @classmethod
    def all_from_pydantic(
        cls, error: ValidationError, *, file: str = "", known: Iterable[str] = ()
    ) -> list["BadInputError"]:
        """Every problem that pydantic found, likewise."""
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        return [_problem(each, file, known) for each in problems]


def _problem(found: "ErrorDetails", file: str, known: Iterable[str]) -> BadInputError:
    reason = found["msg"].removeprefix("Value error, ")
    if found["type"] == "extra_forbidden":
        reason = "unknown key" + _meant(str(found["loc"][-1]), known)
    return BadInputError(reason, place=".".join(str(step) for step in found["loc"]), file=file)


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
