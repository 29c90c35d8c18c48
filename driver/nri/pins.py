"""Which CPUs a container gets, and when it must not run: decisions without memory or side effects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from driver.ledger.entry import Entry, Owner
from driver.names import VARIABLE, is_uid
from driver.nri.container import Container, Stage
from driver.nri.plan import Held, Plan
from driver.nri.sight import MOST_VARIABLES, Pin, Sight, text_of
from models import CpusatError, format_cpuset, parse_cpuset, to_mask, union

_LONGEST_CPU = len("65535,")

Claims = Mapping[str, int]
"""Claims that a container carries, by uid, with the CPUs they had when it was let in."""

Rival = Callable[[Entry, Sight], Owner | None]
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


def claims_of(sight: Sight, plan: Plan, rival: Rival, *, found: bool = False) -> Claims:
    """The claims that a container's environment names; the ledger decides whether it does so rightly.

    ``found``: it runs already, so it may carry a claim that was taken over without knowing its pods. Raises
    ``RefusedContainerError`` at the first variable that is wrong.
    """
    if len(sight.variables) > MOST_VARIABLES:
        raise RefusedContainerError(f"{sight}: names more than {MOST_VARIABLES} claims by {VARIABLE}…")
    claims: dict[str, int] = {}
    for key, pairs in groupby(sorted(sight.variables, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        try:
            held = _held(key, [value for _, value in pairs], plan)
            if not _is_reserved(held.entry, sight, found=found):
                reason = "the claim is not reserved for this pod; name it in the pod's resourceClaims"
                raise NotReservedError(f"{sight}: {key[:120]}: {reason}", held.entry.uid)
            _check_free(held.entry, sight, rival)
        except ValueError as error:
            raise RefusedContainerError(f"{sight}: {key[:120]}: {error}") from None
        claims[held.entry.uid] = held.cpus
    return claims


def _held(key: str, values: list[str], plan: Plan) -> Held:
    uid = key.removeprefix(VARIABLE)
    if not is_uid(uid):
        raise ValueError("names no claim; variables that begin like this are for the CPU driver alone")
    held = plan.claims.get(uid)
    if held is None:
        raise ValueError("this claim is not prepared on this node; the kubelet prepares it when the pod names it")
    _check_values(values, held.entry.cpuset)
    return held


def _check_values(values: list[str], cpus: frozenset[int]) -> None:
    if max(map(len, values)) > _LONGEST_CPU * len(cpus):
        raise ValueError("is longer than any list of as many CPUs as the claim holds")
    named = {parse_cpuset(value) for value in set(values)}
    if len(named) > 1:
        raise ValueError("is there twice with different values; take it out of the pod's spec or the image")
    if named != {cpus}:
        said = format_cpuset(named.pop())[:80]
        raise ValueError(f"says CPUs {said or 'none'}, but the claim holds {format_cpuset(cpus)}")


def _is_reserved(entry: Entry, sight: Sight, *, found: bool) -> bool:
    """Whether the claim is for this pod. Pods of one that was taken over may be unknown."""
    is_owner = entry.owner is not None and sight.is_of(entry.owner)
    unknown_pods = entry.adopted and not entry.pods and (found or is_owner)
    return sight.pod_uid in entry.pods or unknown_pods


def _check_free(entry: Entry, sight: Sight, rival: Rival) -> None:
    if other := rival(entry, sight):
        raise ValueError(
            f"the claim belongs to container {other.container[:80]!r} of pod {other.pod_uid[:80]}; "
            "a claim is for one container, give each its own"
        )


def held_by(container: Container, plan: Plan) -> list[Held]:
    """The claims that it carries, as far as the ledger still has them as they were."""
    claims = ((plan.claims.get(uid), cpus) for uid, cpus in container.claims.items())
    return [held for held, cpus in claims if held is not None and held.cpus == cpus]


def desired(container: Container, plan: Plan) -> Pin:
    """Its claims' CPUs and memory nodes; what the kubelet's CPU manager has given it; or the shared pool.

    No CPUs: it is left as it is.
    """
    held = held_by(container, plan) if container.claims else []
    if held:
        return Pin(plan.up(union(each.cpus for each in held)), union(each.mems for each in held))
    if is_left_alone(container, plan):
        return Pin(0)
    given = _of_kubelet(container, plan)
    return Pin(given) if given else plan.pool


def _of_kubelet(container: Container, plan: Plan) -> int:
    """CPUs that the kubelet has given it, but for those of claims. What the kubelet has asked for since counts."""
    given = plan.of_kubelet(container.sight)
    return plan.up((container.asked or given) & ~plan.claimed) if given else 0


def is_left_alone(container: Container, plan: Plan) -> bool:
    """Whether it may have its CPUs from the kubelet, which nobody can tell, and has none of a claim. One that we
    have let in or moved ourselves is ours."""
    ours = plan.snapshot.foreign.known or container.told is not None or container.stage is Stage.CREATING
    return not ours and not (container.reach | (container.asked or 0)) & plan.claimed


def exclusive(container: Container, plan: Plan) -> int:
    """CPUs that are for this container alone."""
    return union(each.cpus for each in held_by(container, plan)) if container.claims else 0


def in_the_way(container: Container, others: Iterable[Container], plan: Plan) -> list[Container]:
    """Containers with processes, or about to have some, that may run on CPUs of this one's claims."""
    own = exclusive(container, plan)
    return [each for each in others if each.reach & own and not each.sight.replaces(container.sight)]


def check_exclusive(container: Container, ways: Sequence[Container], plan: Plan) -> None:
    """Raise ``InTheWayError`` if these are in its way, or ``RefusedContainerError`` if there is no way out."""
    if not ways:
        return
    more = f" and {len(ways) - 1} more" if len(ways) > 1 else ""
    said = f"{container.sight}: {ways[0].sight}{more} may still run on its CPUs"
    if not all(desired(each, plan).cpus for each in ways):
        raise RefusedContainerError(f"{said}, and {_why_no_pool(plan)}")
    raise InTheWayError(f"{said}; that is being put right")


def check_claims(container: Container, plan: Plan) -> None:
    """Raise ``RefusedContainerError`` if it does not carry rightly what it says it carries."""
    if container.refusal:
        raise RefusedContainerError(container.refusal)
    kept = {each.entry.uid for each in held_by(container, plan)}
    if lost := sorted(container.claims.keys() - kept):
        raise RefusedContainerError(f"{container.sight}: claim {lost[0]} is no longer prepared as it was")


def check_reach(container: Container, carriers: Iterable[Container], plan: Plan) -> None:
    """Raise ``InTheWayError`` if it may run on CPUs of a claim whose container runs, or ``RefusedContainerError``
    if there are no others that it could be given."""
    for each in carriers:
        if not each.started or each.sight.replaces(container.sight):
            continue
        for held in held_by(each, plan):
            if taken := container.reach & held.cpus:
                check_pool(container, plan)
                raise InTheWayError(
                    f"{container.sight}: its mask has CPUs {text_of(taken)}, which claim {held.entry.uid} holds "
                    "by now; it gets the right mask when it is created anew"
                )


def check_pool(container: Container, plan: Plan) -> None:
    """Raise ``RefusedContainerError`` if there are no CPUs that it could be given: the runtime would read an empty
    list as "no change", and start it on all of them."""
    if not desired(container, plan).cpus:
        raise RefusedContainerError(f"{container.sight}: {_why_no_pool(plan)}")


def _why_no_pool(plan: Plan) -> str:
    node, snapshot = plan.snapshot.node, plan.snapshot
    reasons = [
        (plan.claimed, "claims hold CPUs {}: end a pod with a claim, or set reservedCPUs"),
        (plan.held & ~plan.claimed, "files of the ledger in quarantine name CPUs {}: see troubleshooting.md"),
        (to_mask(node.offline - snapshot.held), "CPUs {} are offline: bring them up"),
    ]
    said = "; ".join(reason.format(text_of(cpus)) for cpus, reason in reasons if cpus)
    return f"no CPU is left for containers without a claim ({said})"
