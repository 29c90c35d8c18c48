"""What a kubelet's CPU manager has handed out, from its ``cpu_manager_state`` file."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models import BadInputError, CPUSet
from topologies.readers.text import decode, parse_json


class _State(BaseModel):
    """The checkpoint as kubelets since 1.18 write it; later members are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    policy: str = Field(alias="policyName")
    default: CPUSet = Field(default=frozenset(), alias="defaultCpuSet")
    entries: dict[str, dict[str, CPUSet]] | None = None


def read_cpu_manager_state(
    text: str, *, file: str = ""
) -> tuple[dict[str, frozenset[int]], frozenset[int] | None]:
    """Held CPUs per ``pod uid/container``, and the default CPU set (the shared pool).

    The default is ``None`` where the policy keeps none. It need not cover all other CPUs: with
    ``strict-cpu-reservation`` the reserved ones are missing. The checksum is not checked: it guards the
    kubelet against its own crashes, and depends on how a Go release prints structures. Raises
    ``BadInputError`` with the file and the place.
    """
    try:
        state = _State.model_validate(parse_json(decode(text.encode("utf-8", "surrogatepass"))))
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=file) from None
    except BadInputError as error:
        raise error.within(file) from None
    if state.policy == "none":
        return {}, None
    pods = (state.entries or {}).items()
    held = {f"{pod}/{container}": cpus for pod, containers in pods for container, cpus in containers.items()}
    return held, state.default
