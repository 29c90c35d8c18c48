"""The driver in a process of its own, on a machine that is read below a folder:
``python -m benchmarks.driver.alone CONFIG ROOT``."""

import sys
from pathlib import Path

from driver.config import read_config
from driver.logs import configure
from driver.serve import run


def main(config: Path, root: Path) -> None:
    """Serve until SIGTERM."""
    configure(verbose=False)
    run(read_config(config), root)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
