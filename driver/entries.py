"""From a claim as the API server has it to an entry of the ledger."""

from collections import Counter

from driver.claims.view import ClaimView
from driver.claims.wish import Wish
from driver.ledger.entry import Entry, Shown


def draft(view: ClaimView, shown: dict[str, Shown]) -> Entry:
    """The claim's entry but for its CPUs."""
    return Entry(
        uid=view.ref.uid,
        namespace=view.ref.namespace,
        name=view.ref.name,
        fingerprint=view.fingerprint,
        cpuset=frozenset(),
        grants=view.grants,
        pods=frozenset(view.pods),
        pod_names=dict(view.pods),
        pod_claim=view.pod_claim,
        shown=shown,
    )


def updated(former: Entry, view: ClaimView, shown: dict[str, Shown]) -> Entry:
    """The entry with what the API server says of who may carry it, and of whose claim it is."""
    told = {
        "namespace": view.ref.namespace,
        "name": view.ref.name,
        "pods": frozenset(view.pods),
        "pod_names": dict(view.pods),
        "pod_claim": view.pod_claim,
        "shown": shown,
        "grants": view.grants,
        "fingerprint": view.fingerprint,
        "adopted": False,
    }
    return former.model_copy(update=told)


def could_have(wish: Wish, cpus: frozenset[int]) -> bool:
    """Whether a claim of that wish could have been given these CPUs, as far as numbers of CPUs tell."""
    consumed: Counter[frozenset[int]] = Counter()
    for request in wish.requests:
        consumed[request.within or frozenset()] += request.cpus
    chosen = cpus - wish.set_aside
    return wish.set_aside <= cpus and all(len(chosen & each) == size for each, size in consumed.items())
