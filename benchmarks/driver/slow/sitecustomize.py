"""Makes a process's reading of cgroup files slow. Python imports this at its start where it finds it in
``PYTHONPATH``; ``CPUSAT_SLOW`` is the number of seconds that each file takes longer to open."""

import os
import sys
import time

SECONDS = float(os.environ.get("CPUSAT_SLOW", "0"))


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and "cpuset." in str(arguments[0]):
        time.sleep(SECONDS)


if SECONDS:
    sys.addaudithook(_hook)
