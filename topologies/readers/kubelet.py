"""What a kubelet's CPU manager has handed out, from its ``cpu_manager_state`` file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models import BadInputError, CPUSet
from topologies.readers.text import decode, parse_json

NONE = "none"
"""The policy that gives no CPUs away."""


class _Pod(BaseModel):
    """CPUs of a whole pod, which those of its containers that have none of their own share."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    cpus: CPUSet = Field(default=frozenset(), alias="cpuSet")


class _State(BaseModel):
    """The checkpoint as kubelets since 1.18 write it; later members are ignored.

    From 1.36 on there may be CPUs of pods (``PodLevelResourceManagers``).
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    policy: str = Field(alias="policyName")
    default: CPUSet = Field(default=frozenset(), alias="defaultCpuSet")
    entries: dict[str, dict[str, CPUSet]] | None = None
    pods: dict[str, _Pod] | None = Field(default=None, alias="podEntries")


@dataclass(frozen=True)
class CPUManagerState:
    """What the CPU manager has given: ``containers`` by ``pod uid/container``, ``pods`` by uid; ``default`` is the
    shared pool. The default is ``None`` where the policy keeps none. It need not cover all other CPUs: with
    ``strict-cpu-reservation`` the reserved ones are missing."""

    policy: str
    default: frozenset[int] | None = None
    containers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    pods: Mapping[str, frozenset[int]] = field(default_factory=dict)


def read_state(text: str, *, file: str = "") -> CPUManagerState:
    """The state in a checkpoint.

    The checksum is not checked: it guards the kubelet against its own crashes, and depends on how a Go release
    prints structures. Raises ``BadInputError`` with the file and the place.
    """
    try:
        state = _State.model_validate(parse_json(decode(text.encode("utf-8", "surrogatepass"))))
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=file) from None
    except BadInputError as error:
        raise error.within(file) from None
    if state.policy == NONE:
        return CPUManagerState(NONE)
    pods = (state.entries or {}).items()
    held = {f"{pod}/{container}": cpus for pod, containers in pods for container, cpus in containers.items()}
    shared = {pod: each.cpus for pod, each in (state.pods or {}).items()}
    return CPUManagerState(state.policy, state.default, held, shared)


def read_cpu_manager_state(
    text: str, *, file: str = ""
) -> tuple[dict[str, frozenset[int]], frozenset[int] | None]:
    """Held CPUs per ``pod uid/container``, and the default CPU set. Raises ``BadInputError`` as ``read_state``."""
    state = read_state(text, file=file)
    return dict(state.containers), state.default
