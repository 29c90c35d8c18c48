"""From a claim to requests for the solver: what its results and configs mean under each grouping of devices."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from driver.claims.configs import LONGEST_MESSAGE, Said, problem_of, said_of
from driver.claims.given import check_whole, named, single
from driver.claims.grouping import notes_on
from driver.claims.shares import DeviceCPUs, Share, by_request, shares_of
from driver.claims.view import ClaimView
from driver.config import Config
from driver.errors import RefusedError
from driver.node import NodeCPUs
from driver.options import Memory
from models import BadInputError, Request


@dataclass(frozen=True)
class Wish:
    """What is to be placed for a claim: requests for the solver, and CPUs that are given by number.

    ``given`` is by request; those CPUs are set aside before the rest is solved. ``notes``: what people should
    know of it though it is no error.
    """

    requests: tuple[Request, ...]
    given: Mapping[str, frozenset[int]]
    memory: Memory
    notes: tuple[str, ...]

    @property
    def set_aside(self) -> frozenset[int]:
        """All CPUs that are given."""
        return frozenset[int]().union(*self.given.values())


def wish(view: ClaimView, config: Config, devices: DeviceCPUs, node: NodeCPUs, pool: str | None = None) -> Wish:
    """What the claim means on this node. ``pool``: where this node's devices are published, its name.

    Raises ``RefusedError``: ``BadClaim`` for a device that is not ours, ``BadConfig`` for options or CPUs that
    cannot be meant, with claim, request and key.
    """
    shares = by_request(shares_of(view, devices, pool))
    said = {name: said_of(view, name, config.defaults) for name in shares}
    notes = [note for each in said.values() for note in each.notes]
    for name, each in said.items():
        notes += notes_on(f"claim {view.ref}, request {name}", each, len(shares[name]), config)
    is_single = config.cpu_device_mode == "individual"
    given = single(view, shares, said) if is_single else named(view, shares, said, node)
    if config.full_cores:
        check_whole(view, given, devices)
    requests = tuple(
        _request(f"claim {view.ref}, request {name}", share, said[name], devices, alone=len(own) == 1)
        for name, own in shares.items()
        if name not in given
        for share in own
    )
    memory: Memory = "bind" if any(each.options.memory == "bind" for each in said.values()) else "none"
    return Wish(requests, given, memory, tuple(dict.fromkeys(notes)))


def _request(where: str, share: Share, said: Said, devices: DeviceCPUs, *, alone: bool) -> Request:
    """A share as the solver takes it. Its options hold for it alone, whatever else its request consumes."""
    name = share.request if alone else f"{share.request}@{share.device}"
    try:
        if said.options.near is not None:
            devices.near(said.options.near)
        return Request(name=name, cpus=share.cpus, within=share.within, **said.options.for_request())
    except ValidationError as error:
        raise RefusedError("BadConfig", f"{where}: {problem_of(error)}") from None
    except BadInputError as error:
        raise RefusedError("BadConfig", f"{where}: {str(error)[:LONGEST_MESSAGE]}") from None
