"""The driver's configuration: one flat YAML file, and the command's flags over it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, StrictBool, ValidationError

from driver.options import Options
from models import BadInputError, CPUSet


class Config(Options):
    """All that can be configured; the placement options are the defaults of every claim.

    The first seven fields are those of dra-driver-cpu. ``machine_allocation``: who chooses the CPUs when the
    whole machine is one device: this driver, or an external scheduler by a cpuset in the claim.
    ``solver_time_limit``: seconds. ``min_shared_cpus``: CPUs that always stay in the shared pool, by default 1
    if none are reserved, else 0.
    """

    cpu_device_mode: Literal["grouped", "individual"] = "grouped"
    group_by: Literal["numanode", "socket", "machine"] = "numanode"
    reserved_cpus: CPUSet = Field(default=frozenset(), validation_alias=AliasChoices("reservedCPUs"))
    hostname_override: str = ""
    kubeconfig: str = ""
    publish_node_allocatable_resource_mapping: StrictBool = False
    sysfs_overlay: str = ""
    machine_allocation: Literal["auto", "external"] = "auto"
    solver_time_limit: Annotated[float, Field(ge=0, le=20)] = 2.0
    min_shared_cpus: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None, validation_alias=AliasChoices("minSharedCPUs")
    )
    bind_address: str = ":8080"
    expose_pcie_roots: StrictBool = Field(default=False, validation_alias=AliasChoices("exposePCIeRoots"))
    kubelet_root_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    cgroup_root: Path = Path("/sys/fs/cgroup")

    @property
    def defaults(self) -> Options:
        """The placement options alone."""
        return Options.model_construct(**{name: getattr(self, name) for name in Options.model_fields})


def read_config(file: Path | None, **flags: object) -> Config:
    """The configuration of a YAML file under the flags that are given (by field name). Raises
    ``BadInputError`` with file, place and reason."""
    from solver.cli.yaml_text import parse_yaml
    from topologies.readers.text import read_file

    name = "" if file is None else str(file)
    try:
        document = {} if file is None else parse_yaml(read_file(file)) or {}
        if not isinstance(document, dict):
            raise BadInputError("is no mapping of settings")
        settings = Config.model_validate(document).model_dump(exclude_unset=True)
        given = {key: value for key, value in flags.items() if value is not None}
        return Config.model_validate({**settings, **given}, by_name=True)
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=name) from None
    except BadInputError as error:
        raise error.within(name) from None
