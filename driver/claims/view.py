"""A ResourceClaim as we read it: our results, our configs, who may carry it. Nothing else of it is looked at."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from lightkube.utils.quantity import parse_quantity
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from driver.errors import RefusedError
from driver.ledger.entry import Grant
from driver.names import CAPACITY, DRIVER, is_uid
from driver.ports import ClaimRef, Document
from models import MAX_CPU, BadInputError

Source = Literal["FromClass", "FromClaim"]
Text = Annotated[str, Field(max_length=253)]

MOST_RESULTS, MOST_CONFIGS, MOST_PODS = 32, 64, 4096
"""The API server's own limits are 32, 64 and 256."""


def _none_is_empty(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
    return [] if value is None else value


class _Part(BaseModel):
    """A part of the document; keys that we do not know are somebody else's business."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)


class _Result(_Part):
    request: Text = ""
    driver: Text = ""
    pool: Text = ""
    device: Text = ""
    share_id: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="shareID")
    admin_access: bool | None = None
    consumed_capacity: dict[str, Any] | None = None


class _Opaque(_Part):
    driver: Text = ""
    parameters: Any = None


class _Config(_Part):
    source: str = ""
    requests: Annotated[tuple[Text, ...], Field(max_length=MOST_RESULTS), BeforeValidator(_none_is_empty)] = ()
    opaque: _Opaque | None = None


class _Devices(_Part):
    results: Annotated[tuple[_Result, ...], Field(max_length=MOST_RESULTS), BeforeValidator(_none_is_empty)] = ()
    config: Annotated[tuple[_Config, ...], Field(max_length=MOST_CONFIGS), BeforeValidator(_none_is_empty)] = ()


class _Allocation(_Part):
    devices: _Devices = _Devices()


class _Consumer(_Part):
    resource: Text = ""
    uid: Text = ""


class _Status(_Part):
    allocation: _Allocation | None = None
    reserved_for: Annotated[
        tuple[_Consumer, ...], Field(max_length=MOST_PODS), BeforeValidator(_none_is_empty)
    ] = ()


class _Metadata(_Part):
    uid: Text = ""


class _Claim(_Part):
    metadata: _Metadata
    status: _Status = _Status()


@dataclass(frozen=True)
class ConfigEntry:
    """One opaque config for us: where it stands, which requests it names (none: all), and what it says."""

    source: Source
    requests: tuple[str, ...]
    parameters: Any

    def applies_to(self, request: str) -> bool:
        """Whether it is for the request, by its full name or by that of its prioritized list."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


@dataclass(frozen=True)
class ClaimView:
    """What a claim asks of us. ``pods``: uids of the pods that may carry it.

    ``fingerprint``: of our results and configs; another one means that the claim was allocated anew.
    """

    ref: ClaimRef
    grants: tuple[Grant, ...]
    configs: tuple[ConfigEntry, ...]
    pods: frozenset[str]
    fingerprint: str

    @classmethod
    def read(cls, document: Document, ref: ClaimRef, *, counted: bool = True) -> "ClaimView":
        """The claim of that name as the API server has it. ``counted``: results say how many CPUs they consume;
        else each device is one CPU.

        Raises ``RefusedError``: ``ClaimGone`` if it is another one by now, ``BadClaim`` if it is not allocated or
        cannot be read, ``AdminAccess``.
        """
        try:
            claim = _Claim.model_validate(document)
        except ValidationError as error:
            raise RefusedError("BadClaim", f"claim {ref}: {BadInputError.from_pydantic(error)}") from None
        if claim.metadata.uid != ref.uid:
            reason = f"claim {ref} was replaced: the one of this name has the uid {claim.metadata.uid[:63]!r}"
            raise RefusedError("ClaimGone", reason)
        if claim.status.allocation is None:
            raise RefusedError("BadClaim", f"claim {ref} is not allocated")
        devices = claim.status.allocation.devices
        results = [result for result in devices.results if result.driver == DRIVER]
        configs = tuple(_configs(ref, devices.config))
        return cls(
            ref=ref,
            grants=tuple(_grant(ref, result, counted) for result in results),
            configs=configs,
            pods=frozenset(
                pod.uid for pod in claim.status.reserved_for if pod.resource == "pods" and is_uid(pod.uid)
            ),
            fingerprint=_fingerprint(ref, results, configs),
        )


def _grant(ref: ClaimRef, result: _Result, counted: bool) -> Grant:
    if result.admin_access:
        reason = f"claim {ref}, request {result.request}: adminAccess is for watching devices; it cannot give CPUs"
        raise RefusedError("AdminAccess", reason)
    try:
        cpus = _cpus(result.consumed_capacity or {}) if counted else 1
    except ValueError as error:
        reason = f"claim {ref}, request {result.request}: {CAPACITY} {error}"
        raise RefusedError("BadClaim", reason) from None
    return Grant(
        request=result.request, pool=result.pool, device=result.device, share_id=result.share_id, cpus=cpus
    )


def _cpus(consumed: dict[str, Any]) -> int:
    quantity = consumed.get(CAPACITY)
    if quantity is None:
        raise ValueError("is missing from consumedCapacity")
    number = _number(quantity)
    if number != int(number):
        raise ValueError(f"is {quantity!r}: not a whole number of CPUs")
    if not 1 <= number <= MAX_CPU + 1:
        raise ValueError(f"is {quantity!r}: not from 1 to {MAX_CPU + 1}")
    return int(number)


def _number(quantity: object) -> Decimal:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float) or len(str(quantity)) > 32:
        raise ValueError("is no quantity such as 4 or 1k")
    try:
        number = parse_quantity(str(quantity))
    except (ValueError, ArithmeticError):
        number = None
    if number is None or not number.is_finite() or abs(number.adjusted()) > 30:
        raise ValueError(f"is {str(quantity)[:32]!r}: no quantity such as 4 or 1k")
    return number


def _configs(ref: ClaimRef, configs: tuple[_Config, ...]) -> Iterator[ConfigEntry]:
    for config in configs:
        if config.opaque is None or config.opaque.driver != DRIVER:
            continue
        if config.source not in ("FromClass", "FromClaim"):
            raise RefusedError("BadClaim", f"claim {ref}: a config's source is {config.source[:40]!r}")
        yield ConfigEntry(config.source, config.requests, config.opaque.parameters)  # type: ignore[arg-type]


def _fingerprint(ref: ClaimRef, results: list[_Result], configs: tuple[ConfigEntry, ...]) -> str:
    said = [
        [result.model_dump(mode="json") for result in results],
        [[config.source, list(config.requests), config.parameters] for config in configs],
    ]
    try:
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    except (RecursionError, TypeError, ValueError):
        raise RefusedError("BadClaim", f"claim {ref}: a config is nested too deeply or is no JSON") from None
