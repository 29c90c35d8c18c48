"""What the driver and its solver's process say to each other."""

from pydantic import Field

from driver.processes import Message
from models import BadInputError, CPUSet, Request, Result

MAX_BYTES = 16 * 2**20
"""Of one message. The largest is the first, a machine: 8 MB with 65,536 CPUs."""

READY = b"ready"
"""What the process says once it has solved for the first time."""


class Question(Message):
    """Requests to be placed together on the free CPUs, and how many seconds that may take."""

    requests: tuple[Request, ...]
    free: CPUSet
    time_limit: float = Field(ge=0)


class BadInput(Message):
    """A ``BadInputError``, by its parts."""

    reason: str
    place: str = ""
    file: str = ""

    def error(self) -> BadInputError:
        """As it was raised."""
        return BadInputError(self.reason, place=self.place, file=self.file)


class Reply(Message):
    """A result, or what is wrong with the question, or that the solver caught itself at a wrong answer."""

    result: Result | None = None
    bad_input: BadInput | None = None
    defect: str = ""
