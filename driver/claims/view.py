"""A ResourceClaim as we read it: our results, our configs, who may carry it. Nothing else of it is looked at."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from driver.claims.document import Claim, Result, Source
from driver.claims.quantity import whole_cpus
from driver.errors import RefusedError
from driver.ledger.entry import Grant
from driver.names import CAPACITY, base, is_uid
from driver.ports import ClaimRef, Document
from models import BadInputError

LARGEST_CONFIG = 1 << 16
"""Characters of one config. The API server keeps 10 KiB of it; numbers may be longer here than there."""


@dataclass(frozen=True)
class ConfigEntry:
    """One opaque config for us: where it stands, which requests it names (none: all), and what it says."""

    source: Source
    requests: tuple[str, ...]
    parameters: Any

    def applies_to(self, request: str) -> bool:
        """Whether it is for the request, by its full name or by that of its prioritized list."""
        return not self.requests or request in self.requests or base(request) in self.requests


@dataclass(frozen=True)
class ClaimView:
    """What a claim asks of us. ``pods``: the pods that may carry it, names by uid. ``pod_claim``: what its pod
    calls a claim that was made from a template.

    ``fingerprint``: of our results and configs; another one means that the claim was allocated anew.
    """

    ref: ClaimRef
    grants: tuple[Grant, ...]
    configs: tuple[ConfigEntry, ...]
    pods: Mapping[str, str]
    fingerprint: str
    pod_claim: str = ""

    @classmethod
    def read(cls, document: Document, ref: ClaimRef, *, counted: bool = True) -> "ClaimView":
        """The claim of that name as the API server has it. ``counted``: results say how many CPUs they consume;
        else each device is one CPU.

        Raises ``RefusedError``: ``ClaimGone`` if it is another one by now, ``BadClaim`` if it is not allocated or
        cannot be read, ``AdminAccess``.
        """
        try:
            claim = Claim.model_validate(document)
        except ValidationError as error:
            raise RefusedError("BadClaim", f"claim {ref}: {BadInputError.from_pydantic(error)}") from None
        if claim.metadata.uid != ref.uid:
            reason = f"claim {ref} was replaced: the one of this name has the uid {claim.metadata.uid[:63]!r}"
            raise RefusedError("ClaimGone", reason)
        if claim.status.allocation is None:
            raise RefusedError("BadClaim", f"claim {ref} is not allocated")
        devices = claim.status.allocation.devices
        grants = tuple(_grant(ref, result, counted) for result in devices.results)
        configs = tuple(ConfigEntry(each.source, each.requests, each.opaque.parameters) for each in devices.config)
        pods = {pod.uid: pod.name for pod in claim.status.reserved_for if is_uid(pod.uid)}
        return cls(ref, grants, configs, pods, _fingerprint(ref, grants, configs), claim.metadata.pod_claim)


def _grant(ref: ClaimRef, result: Result, counted: bool) -> Grant:
    if result.admin_access:
        reason = f"claim {ref}, request {result.request}: adminAccess is for watching devices; it cannot give CPUs"
        raise RefusedError("AdminAccess", reason)
    try:
        cpus = _consumed(result.consumed_capacity or {}) if counted else 1
    except ValueError as error:
        reason = f"claim {ref}, request {result.request}: {CAPACITY} {error}"
        raise RefusedError("BadClaim", reason) from None
    return Grant(
        request=result.request, pool=result.pool, device=result.device, share_id=result.share_id, cpus=cpus
    )


def _consumed(capacity: dict[str, Any]) -> int:
    quantity = capacity.get(CAPACITY)
    if quantity is None:
        raise ValueError("is missing from consumedCapacity")
    return whole_cpus(quantity)


def _fingerprint(ref: ClaimRef, grants: Sequence[Grant], configs: Sequence[ConfigEntry]) -> str:
    said = [each.model_dump_json() for each in grants]
    said += [_canonical(ref, [each.source, each.requests, each.parameters]) for each in configs]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _canonical(ref: ClaimRef, config: list[Any]) -> str:
    """A config as JSON, so that equal ones are equal. This bounds its depth and size, too."""
    try:
        text = json.dumps(config, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        raise RefusedError("BadClaim", f"claim {ref}: a config is nested too deeply or is no JSON") from None
    if len(text) > LARGEST_CONFIG:
        reason = f"claim {ref}: a config of {len(text)} characters; at most {LARGEST_CONFIG} are read"
        raise RefusedError("BadClaim", reason)
    return text
