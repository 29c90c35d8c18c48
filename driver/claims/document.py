"""The parts of a ResourceClaim (resource.k8s.io/v1) that we read, within bounds.

Results and configs of other drivers, consumers that are no pods and keys that we do not know are skipped unread.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StrictBool
from pydantic.alias_generators import to_camel

from driver.names import DRIVER

Source = Literal["FromClass", "FromClaim"]

MOST_RESULTS, MOST_CONFIGS, MOST_PODS = 32, 64, 4096
"""The API server's own limits are 32, 64 and 256."""

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""The annotation by which the control plane says which entry of its pod's ``resourceClaims`` a claim is."""

_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
Text = Annotated[str, Field(max_length=253)]
RequestName = Annotated[str, Field(max_length=127, pattern=f"^{_LABEL}(/{_LABEL})?$")]
"""A request, or an alternative of a prioritized list: ``r`` or ``r/sub``."""


def _only(is_meant: Callable[[dict[str, Any]], bool]) -> BeforeValidator:
    """Of a list, those objects that are meant. What is no object stays, to be refused."""

    def keep(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
        if isinstance(value, list):
            return [each for each in value if not isinstance(each, dict) or is_meant(each)]
        return [] if value is None else value

    return BeforeValidator(keep)


def _is_ours(part: dict[str, Any]) -> bool:
    return part.get("driver") == DRIVER


def _configures_us(config: dict[str, Any]) -> bool:
    opaque = config.get("opaque")
    return _is_ours(opaque) if isinstance(opaque, dict) else opaque is not None


def _is_pod(consumer: dict[str, Any]) -> bool:
    return consumer.get("resource") == "pods" and not consumer.get("apiGroup")


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)


class Result(_Part):
    """A device, or a share of one, that the scheduler gave to a request."""

    request: RequestName
    pool: Text
    device: Text
    share_id: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="shareID")
    admin_access: StrictBool | None = None
    consumed_capacity: dict[str, Any] | None = None


class Opaque(_Part):
    """What a driver is told; the API server keeps any JSON."""

    parameters: Any = None


class Config(_Part):
    """An opaque config; no ``requests`` means all of them."""

    source: Source
    requests: Annotated[tuple[Text, ...], FailFast(), Field(max_length=MOST_RESULTS), _only(bool)] = ()
    opaque: Opaque


class Devices(_Part):
    """What was allocated."""

    results: Annotated[tuple[Result, ...], FailFast(), Field(max_length=MOST_RESULTS), _only(_is_ours)] = ()
    config: Annotated[tuple[Config, ...], FailFast(), Field(max_length=MOST_CONFIGS), _only(_configures_us)] = ()


class Allocation(_Part):
    """The scheduler's decision."""

    devices: Devices = Devices()


class Consumer(_Part):
    """A pod that may carry the claim."""

    uid: Text
    name: Text = ""


class Status(_Part):
    """What has become of the claim."""

    allocation: Allocation | None = None
    reserved_for: Annotated[tuple[Consumer, ...], FailFast(), Field(max_length=MOST_PODS), _only(_is_pod)] = ()


class Metadata(_Part):
    """Which claim it is."""

    uid: Text
    annotations: dict[str, Any] | None = None

    @property
    def pod_claim(self) -> str:
        """What the pod's spec calls a claim that was made from a template, empty for others. Whoever makes claims
        can annotate them: what cannot be such a name is none."""
        said = (self.annotations or {}).get(POD_CLAIM)
        return said if isinstance(said, str) and re.fullmatch(_LABEL, said, re.ASCII) else ""


class Claim(_Part):
    """A ResourceClaim."""

    metadata: Metadata
    status: Status = Status()
