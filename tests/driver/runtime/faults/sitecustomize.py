"""Spoils a process's calls to its disk. Python imports this at its start where it finds it in ``PYTHONPATH``.

``CPUSAT_FAULTS`` names a folder with ``orders.json``: ``folders`` (what is below them is spoilt), ``kill_at``
(the process is killed right before that step), ``stall_at`` and ``stall`` (seconds that this step takes longer).
They are read before each step, which is written to ``steps``.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("CPUSAT_FAULTS", "/nonexistent"))
EVENTS = {"open": "write", "os.rename": "rename", "os.remove": "remove"}

_fsync = os.fsync
_lock = threading.Lock()
_busy = threading.local()


def _path_of(event: str, arguments: tuple[Any, ...]) -> str:
    """What a step is about to change; nothing for what only reads."""
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        return ""
    target = arguments[1] if event == "os.rename" else arguments[0]
    return os.fspath(target) if isinstance(target, str | os.PathLike) else ""


def _step(what: str, path: str) -> None:
    with _lock:
        try:
            orders = json.loads((FOLDER / "orders.json").read_text())
        except (OSError, ValueError):
            return
        if not any(path.startswith(folder) for folder in orders["folders"]):
            return
        with (FOLDER / "steps").open("a") as steps:
            steps.write(f"{what} {path}\n")
        number = len((FOLDER / "steps").read_text().splitlines())
    if number == orders.get("kill_at"):
        os.kill(os.getpid(), signal.SIGKILL)
    if number == orders.get("stall_at"):
        time.sleep(orders["stall"])


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in EVENTS or getattr(_busy, "now", False):
        return
    _busy.now = True
    try:
        if path := _path_of(event, arguments):
            _step(EVENTS[event], path)
    finally:
        _busy.now = False


def _slow_fsync(descriptor: int) -> None:
    _busy.now = True
    try:
        _step("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    finally:
        _busy.now = False
    _fsync(descriptor)


if FOLDER.is_dir():
    os.fsync = _slow_fsync
    sys.addaudithook(_hook)
