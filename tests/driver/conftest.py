import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path that leaves room for the names of unix sockets, which have 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="cpusat-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
