"""From a claim to requests for the solver: what its results and configs mean under each grouping of devices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from driver.claims.configs import Said, said_of
from driver.claims.view import ClaimView
from driver.config import Config
from driver.errors import RefusedError
from driver.node import NodeCPUs
from driver.options import Memory, Options
from models import BadInputError, Request, format_cpuset


class DeviceCPUs(Protocol):
    """Which CPUs the devices stand for."""

    def cpus(self, device: str) -> frozenset[int] | None:
        """Those of a device, ``None`` if there is none of this name."""


@dataclass(frozen=True)
class Wish:
    """What is to be placed for a claim: requests for the solver, and CPUs that are given by number.

    ``given`` is by request; those CPUs are set aside before the rest is solved. ``notes``: what people should
    know of it though it is no error.
    """

    requests: tuple[Request, ...]
    given: dict[str, frozenset[int]]
    memory: Memory
    notes: tuple[str, ...]

    @property
    def set_aside(self) -> frozenset[int]:
        """All CPUs that are given."""
        return frozenset().union(*self.given.values())


@dataclass(frozen=True)
class _Share:
    """What one request consumes of one device, over all results that say so."""

    request: str
    device: str
    cpus: int
    within: frozenset[int]


def wish(view: ClaimView, config: Config, devices: DeviceCPUs, node: NodeCPUs) -> Wish:
    """What the claim means on this node.

    Raises ``RefusedError``: ``BadClaim`` for a device that is not ours, ``BadConfig`` for options or CPUs that
    cannot be meant, with claim, request and key.
    """
    shares = _shares(view, devices)
    names = dict.fromkeys(share.request for share in shares)
    said = {name: said_of(view, name, config.defaults) for name in names}
    meaning = _MEANINGS[config.group_by if config.cpu_device_mode == "grouped" else "individual"]
    notes = [note for each in said.values() for note in each.notes]
    for name, each in said.items():
        notes += meaning(f"claim {view.ref}, request {name}", each, config)
    given = dict(_given(view, shares, said, config, node))
    requests = tuple(
        _request(view, share, shares, said[share.request]) for share in shares if share.request not in given
    )
    memory: Memory = "bind" if any(each.options.memory == "bind" for each in said.values()) else "none"
    return Wish(requests, given, memory, tuple(dict.fromkeys(notes)))


def _shares(view: ClaimView, devices: DeviceCPUs) -> list[_Share]:
    if not view.grants:
        raise RefusedError("BadClaim", f"claim {view.ref}: none of its devices are of this driver")
    consumed: dict[tuple[str, str], int] = {}
    for grant in view.grants:
        key = (grant.request, grant.device)
        consumed[key] = consumed.get(key, 0) + grant.cpus
    return [_Share(*key, cpus, _cpus_of(view, key, cpus, devices)) for key, cpus in consumed.items()]


def _cpus_of(view: ClaimView, key: tuple[str, str], cpus: int, devices: DeviceCPUs) -> frozenset[int]:
    request, device = key
    within = devices.cpus(device)
    if within is None:
        reason = f"claim {view.ref}, request {request}: this node has no device {device[:63]!r}"
        raise RefusedError("BadClaim", reason)
    if cpus > len(within):
        reason = f"claim {view.ref}, request {request}: {cpus} CPUs of device {device}, which has {len(within)}"
        raise RefusedError("BadClaim", reason)
    return within


def _given(
    view: ClaimView, shares: Sequence[_Share], said: dict[str, Said], config: Config, node: NodeCPUs
) -> Iterator[tuple[str, frozenset[int]]]:
    """CPUs by request that nobody has to choose: named by a config, or devices that are single CPUs."""
    taken: dict[int, str] = {}
    for name, each in said.items():
        own = [share for share in shares if share.request == name]
        cpus = each.cpuset
        if config.cpu_device_mode == "individual":
            chosen = frozenset().union(*(share.within for share in own))
            if cpus is not None and cpus != chosen:
                raise _bad(view, name, f"cpuConfig.cpuset: the scheduler chose CPUs {format_cpuset(chosen)}")
            cpus = chosen
        if cpus is None:
            continue
        _check_given(view, name, cpus, own, node)
        for cpu in sorted(cpus):
            if (other := taken.setdefault(cpu, name)) != name:
                raise _bad(view, name, f"cpuConfig.cpuset: CPU {cpu} is given to request {other} too")
        yield name, cpus


def _check_given(view: ClaimView, name: str, cpus: frozenset[int], own: Sequence[_Share], node: NodeCPUs) -> None:
    size = sum(share.cpus for share in own)
    if len(cpus) != size:
        raise _bad(view, name, f"cpuConfig.cpuset: names {len(cpus)} CPUs, and {size} are consumed")
    if missing := cpus - node.online:
        raise _bad(view, name, f"cpuConfig.cpuset: CPUs {format_cpuset(missing)} are not online")
    if reserved := cpus & node.reserved:
        raise _bad(view, name, f"cpuConfig.cpuset: CPUs {format_cpuset(reserved)} are reserved")
    for share in own:
        inside = len(cpus & share.within)
        if inside != share.cpus:
            what = f"names {inside} CPUs of device {share.device}, of which {share.cpus} are consumed"
            raise _bad(view, name, f"cpuConfig.cpuset: {what}")


def _request(view: ClaimView, share: _Share, shares: Sequence[_Share], said: Said) -> Request:
    alone = sum(other.request == share.request for other in shares) == 1
    try:
        return Request(
            name=share.request if alone else f"{share.request}@{share.device}",
            cpus=share.cpus,
            within=share.within,
            **said.options.for_request(),
        )
    except ValidationError as error:
        raise _bad(view, share.request, str(BadInputError.from_pydantic(error))) from None


Meaning = Callable[[str, Said, Config], list[str]]
"""What a grouping has to say of a request: notes, or ``RefusedError``."""


def _machine(where: str, said: Said, config: Config) -> list[str]:
    if config.machine_allocation == "external" and said.cpuset is None:
        raise RefusedError(
            "BadConfig",
            f"{where}: machineAllocation is external here, so a scheduler must name the CPUs (cpuConfig.cpuset)",
        )
    return _ignores_options(where, said)


def _socket(where: str, said: Said, config: Config) -> list[str]:
    return _ignores_options(where, said)


def _numa_node(where: str, said: Said, config: Config) -> list[str]:
    if said.options.allocation_policy != "distributed":
        return _ignores_options(where, said)
    within_one = "a device is one NUMA node here, within which distributed adds nothing"
    if _insists(said.options, "policy"):
        reason = f"{within_one}; leave out strict, or let the driver group by socket or machine"
        raise RefusedError("BadConfig", f"{where}: allocationPolicy: {reason}")
    return [f"{where}: {within_one}", *_ignores_options(where, said)]


def _individual(where: str, said: Said, config: Config) -> list[str]:
    wanted = said.own.model_dump(exclude_none=True, exclude={"memory"})
    if wanted:
        name = Options.model_fields[next(iter(wanted))].validation_alias
        reason = "each CPU is a device here and the scheduler chose them, so nothing is left to place"
        raise RefusedError("BadConfig", f"{where}: {name}: {reason}; let the driver group CPUs, or leave it out")
    return []


def _ignores_options(where: str, said: Said) -> list[str]:
    """With CPUs named by number nothing is left for options to say."""
    wanted = said.own.model_dump(exclude_none=True, exclude={"memory"})
    return [f"{where}: cpuConfig.cpuset names the CPUs; options are ignored"] if said.cpuset and wanted else []


def _insists(options: Options, preference: str) -> bool:
    return options.strict is True or (isinstance(options.strict, frozenset) and preference in options.strict)


_MEANINGS: dict[str, Meaning] = {
    "machine": _machine,
    "socket": _socket,
    "numanode": _numa_node,
    "individual": _individual,
}


def _bad(view: ClaimView, request: str, what: str) -> RefusedError:
    return RefusedError("BadConfig", f"claim {view.ref}, request {request}: {what}")
