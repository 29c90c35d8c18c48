"""The driver's configuration: one flat YAML file, and the command's flags over it.

Names and defaults of what dra-driver-cpu has too are its own (``docs/user/configuration.md`` there).
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from driver.options import Options, in_users_words
from models import BadInputError, CPUSet, Request
from topologies.readers.text import read_file
from topologies.readers.yaml_text import parse_yaml


def read_address(text: str) -> tuple[str, int]:
    """Host and port of ``:8080``, ``127.0.0.1:8080`` or ``[::]:8080``; no host is all. Raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or (":" in bare and bare == host):
        raise ValueError(f"{text[:80]!r} is no address such as :8080, 127.0.0.1:8080 or [::]:8080")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"{port[:80]!r} is no port from 0 to 65535")
    return bare, int(port)


def _is_address(text: str) -> str:
    read_address(text)
    return text


def _is_absolute(value: Any) -> Path:  # noqa: ANN401 - YAML is anything
    if not isinstance(value, str | Path) or not Path(value).is_absolute() or "\0" in str(value):
        raise ValueError(f"{str(value)[:80]!r} is not an absolute path")
    return Path(value)


def _is_node_name(text: str) -> str:
    if text and not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", text):
        raise ValueError(f"{text[:80]!r} is no node's name such as node-1.example.com")
    return text


AbsolutePath = Annotated[Path, BeforeValidator(_is_absolute)]
NodeName = Annotated[str, AfterValidator(_is_node_name)]
"""As Kubernetes has them, or empty."""


class Config(Options):
    """All that can be configured; the placement options are the defaults of every claim.

    The first nine fields are those of dra-driver-cpu. ``sysfs_overlay``: a YAML file of ``/sys`` paths and what
    to read there instead (``driver.overlay``). ``machine_allocation``: who chooses the CPUs when the whole
    machine is one device: this driver, or an external scheduler by a cpuset in the claim; ``allocator`` is
    dra-driver-cpu's word for it.
    ``solver_time_limit``: seconds; with 0 greedy alone answers. ``min_shared_cpus``: CPUs that always stay in
    the shared pool, by default 1 if none are reserved, else 0. ``device_metadata``: whether containers find a file
    that describes the devices of their claim (``driver.metadata``).
    """

    api_version: Literal["v1alpha1"] = "v1alpha1"
    cpu_device_mode: Literal["grouped", "individual"] = "grouped"
    group_by: Literal["numanode", "socket", "machine"] = "numanode"
    allocator: Literal["cpumanager", "external"] | None = None
    reserved_cpus: CPUSet = Field(default=frozenset(), validation_alias=AliasChoices("reservedCPUs"))
    hostname_override: NodeName = ""
    kubeconfig: str = ""
    publish_node_allocatable_resource_mapping: StrictBool = False
    sysfs_overlay: str = ""
    machine_allocation: Literal["auto", "external"] = "auto"
    solver_time_limit: Annotated[float, Field(ge=0, le=20, strict=True, allow_inf_nan=False)] = 2.0
    min_shared_cpus: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None, validation_alias=AliasChoices("minSharedCPUs")
    )
    bind_address: Annotated[str, AfterValidator(_is_address)] = ":8080"
    expose_pcie_roots: StrictBool = Field(default=False, validation_alias=AliasChoices("exposePCIeRoots"))
    device_metadata: StrictBool = True
    kubelet_root_dir: AbsolutePath = Path("/var/lib/kubelet")
    cdi_dir: AbsolutePath = Path("/var/run/cdi")
    nri_socket: AbsolutePath = Path("/var/run/nri/nri.sock")
    cgroup_root: AbsolutePath = Path("/sys/fs/cgroup")

    @property
    def is_external(self) -> bool:
        """Whether an external scheduler chooses the CPUs."""
        return "external" in (self.machine_allocation, self.allocator)

    @property
    def defaults(self) -> Options:
        """The placement options alone."""
        return Options.model_construct(**{name: getattr(self, name) for name in Options.model_fields})

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.is_external and (self.cpu_device_mode, self.group_by) != ("grouped", "machine"):
            key = "allocator" if self.allocator == "external" else "machineAllocation"
            raise ValueError(
                f"{key}: external needs cpuDeviceMode: grouped and groupBy: machine; leave it out with other "
                "devices, where a claim may name its CPUs anyway"
            )
        if self.allocator == "cpumanager" and self.is_external:
            raise ValueError("allocator: cpumanager contradicts machineAllocation: external; leave out one")
        if self.defaults.for_request() and self.cpu_device_mode == "individual":
            raise ValueError(
                "with cpuDeviceMode: individual the scheduler chooses the CPUs; leave placement options out"
            )
        if self.min_shared_cpus == 0 and not self.reserved_cpus:
            raise ValueError("minSharedCPUs: 0 leaves containers without a claim nothing; reserve CPUs for them")
        _check_defaults(self.defaults)
        return self


def _check_defaults(defaults: Options) -> None:
    """Raise ``ValueError`` on options that contradict each other: no claim could be placed with them."""
    try:
        Request(cpus=1, **defaults.for_request())
    except ValidationError as error:
        raise ValueError(in_users_words(BadInputError.from_pydantic(error).reason)) from None


KEYS = [
    str(alias.choices[0] if isinstance(alias, AliasChoices) else alias)
    for alias in (field.validation_alias for field in Config.model_fields.values())
]
"""Of the file, as they are written there."""


def read_config(file: Path | None, **flags: object) -> Config:
    """The configuration of a YAML file, under the flags that are given by field name and not ``None``.

    Raises ``BadInputError`` with the file or the flag, the place and the reason.
    """
    config = Config() if file is None else _read_file(file)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        set_there = config.model_dump(exclude_unset=True)
        return Config.model_validate({**set_there, **given}, by_name=True)
    except ValidationError as error:
        bad = BadInputError.from_pydantic(error)
        place = f"--{bad.place.replace('_', '-')}" if bad.place in given else bad.place
        raise BadInputError(bad.reason, place=place) from None


def examine(file: Path) -> Config | list[BadInputError]:
    """The configuration of a YAML file, or all that is wrong with it; ``read_config`` raises the first of it."""
    try:
        return Config.model_validate(_document(file))
    except ValidationError as error:
        return BadInputError.all_from_pydantic(error, file=str(file), known=KEYS)
    except BadInputError as error:
        return [error]


def _read_file(file: Path) -> Config:
    try:
        return Config.model_validate(_document(file))
    except ValidationError as error:
        raise BadInputError.from_pydantic(error, file=str(file), known=KEYS) from None


def _document(file: Path) -> dict[str, Any]:
    """The settings that the file gives a value. Raises ``BadInputError`` with the file."""
    try:
        document = parse_yaml(read_file(file))
    except BadInputError as error:
        raise error.within(str(file)) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadInputError("is not a mapping of settings such as 'groupBy: socket'", file=str(file))
    return {key: value for key, value in document.items() if value is not None}
