"""Checks of the arguments of ``solve``: requests, free CPUs and numbers."""

from collections.abc import Iterable, Sequence
from typing import get_args

from pydantic import ValidationError

from models import (
    BadInputError,
    Claim,
    Constraint,
    Request,
    Topology,
    format_cpuset,
    from_mask,
    read_cpuset,
    to_mask,
)
from solver.methods import EngineChoice
from solver.problem import Prepared

MOST_WORKERS = 1024


def prepared_of(topology: Topology | Prepared) -> Prepared:
    """The machine, prepared if it is not yet."""
    if not isinstance(topology, Topology | Prepared):
        raise BadInputError("is neither a Topology nor a Prepared machine", place="topology")
    return topology if isinstance(topology, Prepared) else Prepared(topology)


def check_numbers(engine: EngineChoice, time_limit: float, workers: int, seed: int) -> None:
    """Raise ``BadInputError`` for an engine that there is not, and for numbers out of their ranges."""
    if engine not in get_args(EngineChoice):
        raise BadInputError(f"{engine!r} is not one of {', '.join(get_args(EngineChoice))}", place="engine")
    if not isinstance(time_limit, int | float) or not 0 <= time_limit < float("inf"):
        raise BadInputError(f"{time_limit} is not a number of seconds, 0 or more", place="time_limit")
    for name, value, least, most in (("workers", workers, 1, MOST_WORKERS), ("seed", seed, 0, 2**31 - 1)):
        if type(value) is not int or not least <= value <= most:
            raise BadInputError(f"{value!r} is not a whole number from {least} to {most}", place=name)


def claim_of(
    topology: Topology, requests: Request | Sequence[Request] | None, constraints: Sequence[Constraint] | None
) -> Claim:
    """The requests and constraints given, or else those of the document. Raises ``BadInputError``."""
    wanted = topology.requests if requests is None else requests
    wanted = (wanted,) if isinstance(wanted, Request) else wanted
    rules = topology.constraints if constraints is None and requests is None else constraints or ()
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Iterable):
        raise BadInputError("is neither a Request nor a sequence of them", place="requests")
    if not wanted:
        raise BadInputError("no request; say how many CPUs are needed", place="requests")
    try:
        return Claim.model_validate({"requests": wanted, "constraints": rules})
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None


def free_cpus(prepared: Prepared, free: Iterable[int] | str | None) -> int:
    """Mask of the free CPUs, reserved ones never among them. Raises ``BadInputError``."""
    if free is None:
        return to_mask(prepared.topology.free)
    if prepared.topology.held:
        raise BadInputError("give either free CPUs or held ones, not both", place="free")
    try:
        given = to_mask(read_cpuset(free if isinstance(free, str | bytes) else frozenset(free)))
    except (TypeError, ValueError) as error:
        raise BadInputError(str(error), place="free") from None
    if missing := given & ~prepared.machine.online:
        raise BadInputError(f"CPUs {format_cpuset(from_mask(missing))} are not online", place="free")
    return given & prepared.scorer.allocatable
