"""The driver in a process of its own, on a machine that is read below a folder:
``python -m benchmarks.driver.alone CONFIG ROOT``."""

import signal
import sys
from pathlib import Path

from driver.config import read_config
from driver.logs import configure
from driver.serve import Driver


def main(config: Path, root: Path) -> None:
    """Serve until SIGTERM."""
    configure(verbose=False)
    driver = Driver(read_config(config), root)
    signal.signal(signal.SIGTERM, lambda *_: driver.stopped.set())
    driver.start()
    driver.stopped.wait()
    driver.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
