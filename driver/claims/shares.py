"""What each request consumes of each device: all results of one request on one device are one share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from driver.claims.view import ClaimView
from driver.errors import RefusedError


class DeviceCPUs(Protocol):
    """Which CPUs the devices stand for, and what they are near to."""

    def cpus(self, device: str) -> frozenset[int] | None:
        """Those of a device, ``None`` if there is none of this name."""

    def near(self, place: str) -> frozenset[int]:
        """Those near a device of another kind or a CPU list. Raises ``BadInputError`` if it is neither here."""

    def split(self, cpus: frozenset[int]) -> frozenset[int]:
        """Of these CPUs, those of cores that are not among them as a whole."""


@dataclass(frozen=True)
class Share:
    """So many CPUs for a request, of a device that has the CPUs ``within``."""

    request: str
    device: str
    cpus: int
    within: frozenset[int]


def shares_of(view: ClaimView, devices: DeviceCPUs, pool: str | None = None) -> list[Share]:
    """In the order of the claim's results. ``pool``: this node's, of which all must be.

    Raises ``RefusedError("BadClaim")`` for what no device of ours has.
    """
    if not view.grants:
        raise RefusedError("BadClaim", f"claim {view.ref}: none of its devices are of this driver")
    consumed: dict[tuple[str, str], int] = {}
    for grant in view.grants:
        if pool not in (None, grant.pool):
            reason = f"device {grant.device[:63]!r} is of pool {grant.pool[:63]!r}, and this node's is {pool!r}"
            raise RefusedError("BadClaim", f"claim {view.ref}, request {grant.request}: {reason}")
        key = (grant.request, grant.device)
        consumed[key] = consumed.get(key, 0) + grant.cpus
    return [Share(*key, cpus, _within(view, key, cpus, devices)) for key, cpus in consumed.items()]


def by_request(shares: Iterable[Share]) -> dict[str, list[Share]]:
    """The shares of each request, in their order."""
    found: dict[str, list[Share]] = {}
    for share in shares:
        found.setdefault(share.request, []).append(share)
    return found


def _within(view: ClaimView, key: tuple[str, str], cpus: int, devices: DeviceCPUs) -> frozenset[int]:
    request, device = key
    where = f"claim {view.ref}, request {request}"
    within = devices.cpus(device)
    if within is None:
        raise RefusedError("BadClaim", f"{where}: this node has no device {device[:63]!r}")
    if cpus > len(within):
        raise RefusedError("BadClaim", f"{where}: {cpus} CPUs of device {device}, which has {len(within)}")
    return within
