"""CPUs that nobody has to choose: named by a claim's config, or devices that are single CPUs."""

from collections.abc import Mapping, Sequence

from driver.claims.configs import Said
from driver.claims.shares import DeviceCPUs, Share
from driver.claims.view import ClaimView
from driver.errors import RefusedError
from driver.node import NodeCPUs
from models import format_cpuset

Shares = Mapping[str, Sequence[Share]]


def named(view: ClaimView, shares: Shares, said: Mapping[str, Said], node: NodeCPUs) -> dict[str, frozenset[int]]:
    """By request, the CPUs that configs name. Whether they are free is the ledger's to say.

    Raises ``RefusedError("BadConfig")`` unless they are as many as each device gives, online, not reserved, and
    each is named once.
    """
    found = {name: each.cpuset for name, each in said.items() if each.cpuset is not None}
    for name, cpus in found.items():
        _check(view, name, cpus, shares[name], node)
    _check_apart(view, found)
    return found


def check_whole(view: ClaimView, given: Mapping[str, frozenset[int]], devices: DeviceCPUs) -> None:
    """Raise ``RefusedError("BadConfig")`` where the CPUs of a request are not whole cores."""
    for name, cpus in given.items():
        if split := devices.split(cpus):
            reason = f"CPUs {format_cpuset(split)} are parts of cores, and whole ones are the rule of this node"
            raise _bad(view, name, f"{reason} (fullCores)")


def single(view: ClaimView, shares: Shares, said: Mapping[str, Said]) -> dict[str, frozenset[int]]:
    """By request, the CPUs that its devices are. Raises ``RefusedError("BadConfig")`` if a config names others."""
    found = {name: frozenset[int]().union(*(share.within for share in own)) for name, own in shares.items()}
    for name, cpus in found.items():
        if said[name].cpuset not in (None, cpus):
            raise _bad(view, name, f"the scheduler chose CPUs {format_cpuset(cpus)}, not these")
    _check_apart(view, found)
    return found


def _check(view: ClaimView, name: str, cpus: frozenset[int], shares: Sequence[Share], node: NodeCPUs) -> None:
    size = sum(share.cpus for share in shares)
    if len(cpus) != size:
        raise _bad(view, name, f"names {len(cpus)} CPUs, and {size} are consumed")
    if missing := cpus - node.online:
        raise _bad(view, name, f"CPUs {format_cpuset(missing)} are not online")
    if reserved := cpus & node.reserved:
        raise _bad(view, name, f"CPUs {format_cpuset(reserved)} are reserved")
    for share in shares:
        inside = len(cpus & share.within)
        if inside != share.cpus:
            what = f"names {inside} CPUs of device {share.device}, of which {share.cpus} are consumed"
            raise _bad(view, name, what)


def _check_apart(view: ClaimView, given: Mapping[str, frozenset[int]]) -> None:
    owners: dict[int, str] = {}
    for name, cpus in given.items():
        for cpu in sorted(cpus):
            if (other := owners.setdefault(cpu, name)) != name:
                raise _bad(view, name, f"CPU {cpu} is given to request {other} too")


def _bad(view: ClaimView, request: str, what: str) -> RefusedError:
    return RefusedError("BadConfig", f"claim {view.ref}, request {request}: cpuConfig.cpuset: {what}")
