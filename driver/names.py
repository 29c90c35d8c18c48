"""Names that claims, DeviceClasses and runtimes know us by: the same as those of dra-driver-cpu."""

import re

DRIVER = "dra.cpu"
CAPACITY = "dra.cpu/cpu"
CDI_VENDOR, CDI_CLASS = "dra.k8s.io", "cpu"
CDI_KIND = f"{CDI_VENDOR}/{CDI_CLASS}"
VARIABLE = "DRA_CPUSET_"
"""Prefix of the environment variable by which a container says which claim it carries."""

UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)


def is_uid(text: str) -> bool:
    """Whether a uid can be a part of file names and variables. Those of Kubernetes always can."""
    return UID.fullmatch(text) is not None


def cdi_name(uid: str) -> str:
    """The CDI device of a claim, as it stands in its spec file."""
    return f"claim-{uid}"


def cdi_id(uid: str) -> str:
    """The CDI device of a claim, as the kubelet hands it to the runtime."""
    return f"{CDI_KIND}={cdi_name(uid)}"


def cdi_file(uid: str) -> str:
    """The name of a claim's CDI spec file. Another one would give two files for a device after a migration."""
    return f"{CDI_VENDOR}-{CDI_CLASS}_{cdi_name(uid)}.json"


def variable(uid: str) -> str:
    """The environment variable of a claim."""
    return f"{VARIABLE}{uid}"


def base(request: str) -> str:
    """The request that a result is for, without the alternative of a prioritized list: ``r/sub`` is of ``r``."""
    return request.partition("/")[0]
