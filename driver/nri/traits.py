"""What runtimes of different versions can stand."""

import re

from driver.protos import nri_pb2 as nri

DIRECT_SINCE = (0, 12, 1)
"""NRI's version from which updates out of the blue are safe. Before, they deadlock containerd (its #13733)."""

FREEZES_SINCE: dict[tuple[int, ...], int] = {(1, 7): 26, (2, 0): 3}
"""Patch releases of containerd from which a plugin that connects while a container stops gracefully holds up every
other container until that has stopped (its #14083; measured: 8 s of a grace of 12 s). All of 2.1 do it."""


def is_direct(told: nri.ConfigureRequest) -> bool:
    """Whether the runtime may be sent updates out of the blue."""
    return read_version(told.NRI_version) >= DIRECT_SINCE


def freezes(told: nri.ConfigureRequest) -> bool:
    """Whether another connection may hold up the node's containers."""
    version = read_version(told.runtime_version)
    return told.runtime_name == "containerd" and version[2:] >= (FREEZES_SINCE.get(version[:2], 0),)


def read_version(text: str) -> tuple[int, ...]:
    """``v0.12.1`` as numbers; nothing for what is no version."""
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", text, re.ASCII)
    return tuple(int(part) for part in match.groups("0")) if match else ()
