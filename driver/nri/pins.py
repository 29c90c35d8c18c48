"""Which CPUs a container gets, and when it must not run: decisions without memory or side effects."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from driver.ledger.entry import Entry, Owner, Snapshot
from driver.names import VARIABLE, is_uid
from driver.nri.container import Container, Stage
from driver.nri.sight import MOST_VARIABLES, Pin, Sight
from models import CpusatError, format_cpuset, parse_cpuset

_LONGEST_CPU = len("65535,")

Claims = Mapping[str, frozenset[int]]
"""Claims that a container carries, by uid, with the CPUs they had when it was let in."""

Rival = Callable[[Entry, Owner], Owner | None]
"""Who else carries a claim, if anybody does, so that this container must not."""


class RefusedContainerError(CpusatError):
    """A container must not be created or started. The message says why, and the way out."""


class NotReservedError(RefusedContainerError):
    """The claim ``uid`` is not reserved for the container's pod, as far as the ledger knows. The API server
    may know more by now."""

    def __init__(self, message: str, uid: str) -> None:
        super().__init__(message)
        self.uid = uid


class InTheWayError(RefusedContainerError):
    """It must not be created or started now: masks are not where they should be. Later it may."""


def claims_of(sight: Sight, snapshot: Snapshot, rival: Rival, *, found: bool = False) -> Claims:
    """The claims that a container's environment names; the ledger decides whether it does so rightly.

    ``found``: it runs already, so it may carry a claim that was taken over without knowing its pods. Raises
    ``RefusedContainerError`` at the first variable that is wrong.
    """
    if len(sight.variables) > MOST_VARIABLES:
        raise RefusedContainerError(f"{sight}: names more than {MOST_VARIABLES} claims by {VARIABLE}…")
    claims: dict[str, frozenset[int]] = {}
    for key, pairs in groupby(sorted(sight.variables, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        try:
            entry = _entry(key, [value for _, value in pairs], snapshot)
            if not _is_reserved(entry, sight.owner, found=found):
                reason = "the claim is not reserved for this pod; name it in the pod's resourceClaims"
                raise NotReservedError(f"{sight}: {key[:120]}: {reason}", entry.uid)
            _check_free(entry, sight.owner, rival)
        except ValueError as error:
            raise RefusedContainerError(f"{sight}: {key[:120]}: {error}") from None
        claims[entry.uid] = entry.cpuset
    return claims


def _entry(key: str, values: list[str], snapshot: Snapshot) -> Entry:
    uid = key.removeprefix(VARIABLE)
    if not is_uid(uid):
        raise ValueError("names no claim; variables that begin like this are for the CPU driver alone")
    entry = snapshot.entries.get(uid)
    if entry is None:
        raise ValueError("this claim is not prepared on this node; the kubelet prepares it when the pod names it")
    if max(map(len, values)) > _LONGEST_CPU * len(entry.cpuset):
        raise ValueError("is longer than any list of as many CPUs as the claim holds")
    cpusets = {parse_cpuset(value) for value in set(values)}
    if len(cpusets) > 1:
        raise ValueError("is there twice with different values; take it out of the pod's spec or the image")
    if cpusets != {entry.cpuset}:
        named = format_cpuset(cpusets.pop())[:80]
        raise ValueError(f"says CPUs {named or 'none'}, but the claim holds {format_cpuset(entry.cpuset)}")
    return entry


def _is_reserved(entry: Entry, owner: Owner, *, found: bool) -> bool:
    """Whether the claim is for this pod. Pods of one that was taken over may be unknown."""
    unknown_pods = entry.adopted and not entry.pods and (found or entry.owner == owner)
    return owner.pod_uid in entry.pods or unknown_pods


def _check_free(entry: Entry, owner: Owner, rival: Rival) -> None:
    if other := rival(entry, owner):
        raise ValueError(
            f"the claim belongs to container {other.container[:80]!r} of pod {other.pod_uid[:80]}; "
            "a claim is for one container, give each its own"
        )


def held_by(container: Container, snapshot: Snapshot) -> list[Entry]:
    """The claims that it carries, as far as the ledger still has them as they were."""
    entries = ((snapshot.entries.get(uid), cpus) for uid, cpus in container.claims.items())
    return [entry for entry, cpus in entries if entry is not None and entry.cpuset == cpus]


def desired(container: Container, snapshot: Snapshot) -> Pin:
    """Its claims' CPUs and memory nodes; what the kubelet's CPU manager has given it; or the shared pool.

    No CPUs: it is left as it is.
    """
    entries = held_by(container, snapshot)
    if not entries and _is_left_alone(container, snapshot):
        return Pin(frozenset())
    if not entries:
        return Pin(_of_kubelet(container, snapshot) or snapshot.pool)
    return Pin(
        snapshot.node.up(frozenset().union(*(entry.cpuset for entry in entries))),
        frozenset().union(*(entry.mems for entry in entries)),
    )


def _of_kubelet(container: Container, snapshot: Snapshot) -> frozenset[int]:
    """CPUs that the kubelet has given it, but for those of claims. What the kubelet has asked for since counts."""
    sight = container.sight
    given = snapshot.foreign.of(sight.pod, sight.pod_uid, sight.name)
    return snapshot.node.up((container.asked or given) - snapshot.claimed) if given else given


def _is_left_alone(container: Container, snapshot: Snapshot) -> bool:
    """Whether it may have its CPUs from the kubelet, which nobody can tell, and has none of a claim. One that we
    have let in or moved ourselves is ours."""
    ours = snapshot.foreign.known or container.told is not None or container.stage is Stage.CREATING
    return not ours and not (container.reach | (container.asked or frozenset())) & snapshot.claimed


def in_the_way(container: Container, others: Iterable[Container], snapshot: Snapshot) -> list[Container]:
    """Containers with processes that may run on CPUs of this one's claims."""
    own = frozenset[int]().union(*(entry.cpuset for entry in held_by(container, snapshot)))
    return [each for each in others if each.started and each.owner != container.owner and each.reach & own]


def check_exclusive(container: Container, others: Iterable[Container], snapshot: Snapshot) -> None:
    """Raise ``InTheWayError`` if anybody else may run on its claims' CPUs."""
    if ways := in_the_way(container, others, snapshot):
        more = f" and {len(ways) - 1} more" if len(ways) > 1 else ""
        raise InTheWayError(
            f"{container.sight}: {ways[0].sight}{more} may still run on its CPUs; that is being put right"
        )


def check_claims(container: Container, snapshot: Snapshot) -> None:
    """Raise ``RefusedContainerError`` if it does not carry rightly what it says it carries."""
    if container.refusal:
        raise RefusedContainerError(container.refusal)
    kept = {entry.uid for entry in held_by(container, snapshot)}
    if lost := sorted(container.claims.keys() - kept):
        raise RefusedContainerError(f"{container.sight}: claim {lost[0]} is no longer prepared as it was")


def check_reach(container: Container, others: Iterable[Container], snapshot: Snapshot) -> None:
    """Raise ``InTheWayError`` if it may run on CPUs of a claim whose container runs."""
    for each in others:
        if not each.started or each.owner == container.owner:
            continue
        for entry in held_by(each, snapshot):
            if taken := container.reach & entry.cpuset:
                raise InTheWayError(
                    f"{container.sight}: its mask has CPUs {format_cpuset(taken)}, which claim {entry.uid} holds "
                    "by now; it gets the right mask when it is created anew"
                )
