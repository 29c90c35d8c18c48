"""What the kernel says of other processes."""

from contextlib import suppress
from pathlib import Path


def resident_mb(process: int) -> int:
    """MB resident of a process."""
    return _status_mb(process, "VmRSS")


def peak_mb(process: int) -> int:
    """MB that a process has had resident at most."""
    return _status_mb(process, "VmHWM")


def _status_mb(process: int, key: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith(f"{key}:")).split()[1]) / 1024)


def child(process: int, program: str) -> int | None:
    """The process that its threads have started to run this program (``python -m``), if it lives."""
    for number in children(process):
        with suppress(OSError):  # It has ended.
            if program.encode() in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"):
                return number
    return None


def children(process: int) -> list[int]:
    """Processes that its threads have started and that live."""
    found: set[int] = set()
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # The thread has ended.
            found |= {int(number) for number in listed.read_text().split()}
    return sorted(found)
