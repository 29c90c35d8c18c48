"""Placement options as cluster users write them: in a DeviceClass, a claim, or as the driver's defaults."""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel

from models.request import MAX_NUMA, NUMAIds, NUMAMin, Policy, Preference, Strict

Memory = Literal["none", "bind"]

_PREFERENCES = {"allocationPolicy" if name == "policy" else to_camel(name): name for name in get_args(Preference)}


def _snake_strict(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
    """``allocationPolicy`` and camelCase names of preferences, as ``Request`` has them."""
    if isinstance(value, list):
        return [_snake_strict(each) if isinstance(each, str) else each for each in value]
    if not isinstance(value, str):
        return value
    if value not in _PREFERENCES:
        raise ValueError(f"{value[:80]!r} is not a preference; the preferences are: {', '.join(_PREFERENCES)}")
    return _PREFERENCES[value]


class Options(BaseModel):
    """The options of ``models.Request`` that a cluster may set, all optional; not set means "as before".

    Not ``cpus``, ``name`` and ``within``: the claim's results say those. ``memory``: ``bind`` keeps the
    container's memory on the NUMA nodes of its CPUs.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=AliasGenerator(validation_alias=to_camel)
    )

    allocation_policy: Policy | None = None
    full_cores: StrictBool | None = None
    threads: Literal["pack", "spread"] | None = None
    prefer_l3: StrictBool | None = None
    align_by_socket: StrictBool | None = None
    numa_min: NUMAMin | None = None
    numa_max: Annotated[int, Field(ge=1, le=MAX_NUMA, strict=True)] | None = None
    numa_ids: NUMAIds | None = None
    fit: Literal["tight", "loose"] | None = None
    core_type: Literal["any", "performance", "efficiency"] | None = None
    near: Annotated[str, Field(max_length=253)] | None = None
    strict: Annotated[Strict | None, BeforeValidator(_snake_strict)] = None
    memory: Memory | None = None

    def over(self, other: "Options") -> "Options":
        """These options, and the other's where these are not set."""
        return other.model_copy(update=self.model_dump(exclude_none=True))

    def for_request(self) -> dict[str, Any]:
        """The keyword arguments of ``models.Request`` that these options mean."""
        given = self.model_dump(exclude_none=True, exclude={"memory"})
        if "allocation_policy" in given:
            given["policy"] = given.pop("allocation_policy")
        return given


KEYS = {name: str(field.validation_alias) for name, field in Options.model_fields.items()}
"""Options as users write them, by field: ``numaMin`` for ``numa_min``."""

_FIELDS = re.compile(rf"(?<!')\b({'|'.join(KEYS)}|policy)\b(?!')")
"""What stands in quotes is the user's own."""


def in_users_words(text: str) -> str:
    """A message about ``models.Request``, with the options named as users write them."""
    return _FIELDS.sub(lambda found: KEYS.get(found[0], KEYS["allocation_policy"]), text)
