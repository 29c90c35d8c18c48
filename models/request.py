"""What a workload asks for: how many CPUs, and which placement it prefers or insists on."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    model_validator,
)

from models.cpuset import MAX_CPU, CPUSet, read_cpuset


def _is_name(text: str) -> str:
    if not 0 < len(text) <= 253 or len(text.split()) != 1 or text != text.strip():
        raise ValueError("a name must have 1 to 253 characters and no spaces")
    return text


Policy = Literal["packed", "distributed"]
Level = Literal["numa", "socket", "l3"]
CoreType = Literal["standard", "performance", "efficiency"]
Name = Annotated[str, AfterValidator(_is_name)]
Preference = Literal["policy", "numa_min", "near", "align_by_socket", "prefer_l3", "threads"]

MAX_REQUESTS = 64
MAX_NUMA = 4096


def _read_ids(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
    """NUMA nodes as a list such as "0-1,4", as one number or as numbers."""
    return read_cpuset([value] if type(value) is int else value) if value is not None else None


def _read_strict(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
    """One preference or several, with underscores or dashes."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, bool):
        return names
    known = ", ".join(get_args(Preference))
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected true, false or a list of preferences: {known}")
    found = {name.replace("-", "_") for name in names}
    if unknown := found - set(get_args(Preference)):
        raise ValueError(f"{min(unknown)[:80]!r} is not a preference; the preferences are: {known}")
    return frozenset(found)


def _read_numa_min(value: Any) -> Any:  # noqa: ANN401 - pydantic hands in anything
    """One message, where pydantic would have one for numbers and one for words."""
    if value is None or value == "all" or (type(value) is int and 1 <= value <= MAX_NUMA):
        return value
    raise ValueError(f"expected a number of NUMA nodes from 1 to {MAX_NUMA}, or all")


NUMAMin = Annotated[
    Annotated[int, Field(ge=1, le=MAX_NUMA, strict=True)] | Literal["all"], BeforeValidator(_read_numa_min)
]
NUMAIds = Annotated[frozenset[int], BeforeValidator(_read_ids)]
Strict = Annotated[StrictBool | frozenset[Preference], BeforeValidator(_read_strict)]


class Request(BaseModel):
    """One entry of a claim. Options that are preferences order the answers; rules exclude answers.

    ``cpus``: how many CPUs. ``policy``: ``packed`` spans as little hardware as possible, ``distributed`` takes
    equal shares of the fewest NUMA nodes that allow it (KEP-2902). ``strict`` turns the preferences it names,
    or with ``True`` all that are set, into rules. Raises ``ValidationError`` on options that contradict.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = "cpus"
    cpus: int = Field(ge=1, le=MAX_CPU + 1, strict=True, description="how many CPUs")
    policy: Policy = "packed"
    full_cores: StrictBool = Field(default=False, description="rule: only whole cores (full-pcpus-only)")
    threads: Literal["pack", "spread"] = Field(
        default="pack", description="spread: one CPU per core as far as possible (distribute-cpus-across-cores)"
    )
    prefer_l3: StrictBool = Field(default=False, description="fewer L3s matter more than fewer cores")
    align_by_socket: StrictBool = Field(
        default=False, description="fewer sockets matter more than fewer NUMA nodes"
    )
    numa_min: NUMAMin | None = Field(default=None, description="preference: at least so many NUMA nodes")
    numa_max: Annotated[int, Field(ge=1, le=MAX_NUMA, strict=True)] | None = Field(
        default=None, description="rule: at most so many NUMA nodes"
    )
    numa_ids: NUMAIds | None = Field(default=None, description="rule: only these NUMA nodes")
    fit: Literal["tight", "loose"] = Field(
        default="tight", description="tight: the fullest NUMA node that holds it; loose: the emptiest"
    )
    core_type: Literal["any", "performance", "efficiency"] = Field(default="any", description="rule")
    near: str | None = Field(default=None, description="preference: a device's name, or a CPU list")
    within: CPUSet | None = Field(default=None, description="rule: only these CPUs")
    strict: Strict = Field(default=False, description="preferences to take as rules")

    @model_validator(mode="after")
    def _options_do_not_contradict(self) -> Self:
        if self.threads == "spread" and self.full_cores:
            raise ValueError("threads: spread and full_cores contradict each other; drop one")
        for most, bound in ((self.numa_max, "numa_max"), (self._named_nodes(), "the number of numa_ids")):
            if isinstance(self.numa_min, int) and most is not None and self.numa_min > most:
                raise ValueError(f"numa_min {self.numa_min} is above {bound} {most}")
        if self.numa_ids is not None and not self.numa_ids:
            raise ValueError("numa_ids is empty; leave it out to allow all NUMA nodes")
        if self.within is not None and len(self.within) < self.cpus:
            raise ValueError(f"{self.cpus} CPUs cannot come from within, which names {len(self.within)}")
        return self

    def _named_nodes(self) -> int | None:
        return None if self.numa_ids is None else len(self.numa_ids)

    def is_strict(self, preference: Preference) -> bool:
        """Whether the preference is set and is to be taken as a rule."""
        wanted = {
            "policy": self.policy == "distributed",
            "numa_min": self.numa_min is not None,
            "near": self.near is not None,
            "align_by_socket": self.align_by_socket,
            "prefer_l3": self.prefer_l3,
            "threads": self.threads == "spread",
        }[preference]
        return wanted and (self.strict is True or (self.strict is not False and preference in self.strict))


class Constraint(BaseModel):
    """A rule between requests of one claim, as DRA's matchAttribute and distinctAttribute.

    ``match``: all CPUs of the named requests lie in one domain of the level. ``distinct``: no domain of the
    level is used by two of them. Exactly one of the two is given; no ``requests`` means all of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: Level | None = None
    distinct: Level | None = None
    requests: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.match is None) == (self.distinct is None):
            raise ValueError("give exactly one of match and distinct")
        if self.distinct and len(self.requests) == 1:
            raise ValueError("distinct needs at least two requests, or none for all of them")
        return self

    @property
    def level(self) -> Level:
        """The level whose domains are compared."""
        return self.match or self.distinct or "numa"

    def concerns(self, names: Iterable[str]) -> list[int]:
        """Positions, among the claim's request names, of the requests this rule is about."""
        return [i for i, name in enumerate(names) if not self.requests or name in self.requests]


Requests = Annotated[tuple[Request, ...], FailFast(), Field(max_length=MAX_REQUESTS)]
Constraints = Annotated[tuple[Constraint, ...], FailFast(), Field(max_length=4 * MAX_REQUESTS)]


class Claim(BaseModel):
    """Requests that are placed together, and the rules between them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests: Annotated[Requests, Field(min_length=1)]
    constraints: Constraints = ()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        check_names(self.requests, self.constraints)
        return self


def check_names(requests: Iterable[Request], constraints: Iterable[Constraint]) -> None:
    """Raise ``ValueError`` when a request's name repeats or a constraint names a request that is not there."""
    names = [request.name for request in requests]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"request name {min(repeated)!r} is given twice; give each request a name of its own")
    for constraint in constraints:
        if unknown := set(constraint.requests) - set(names):
            raise ValueError(f"constraint names the unknown request {min(unknown)!r}")
