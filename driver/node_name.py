"""What this node is called: as the driver is told, and as it remembers it for those who look from elsewhere."""

import os
import socket
from pathlib import Path

from driver.config import Config
from driver.durable import read_bounded, write_whole

NODE_NAME = "NODE_NAME"
"""The variable that the DaemonSet sets to ``spec.nodeName``."""

FILE = "node-name"
"""Beside the ledger's folder."""

LONGEST = 254
"""Bytes of the file: a node's name and the end of its line."""


def node_name(config: Config) -> str:
    """By the configuration, the driver's environment, or the machine itself."""
    return config.hostname_override or os.environ.get(NODE_NAME) or socket.gethostname().lower()


def remembered_name(file: Path) -> str | None:
    """What the driver that served here last called its node; ``None`` if it has not left that in the file."""
    try:
        return read_bounded(file, LONGEST).decode().strip() or None
    except (OSError, ValueError):
        return None


def remember_name(file: Path, name: str) -> None:
    """Leave it there for those who look without the driver's environment. Raises ``OSError``."""
    if remembered_name(file) != name:
        write_whole(file, f"{name}\n".encode())
