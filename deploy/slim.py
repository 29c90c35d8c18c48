"""Makes the environment that it runs in small: for the image, in which nobody develops.

Removes tests, sources of compiled modules, and the parts of OR-tools that are not CP-SAT. Compiles the modules
that the driver and its processes load, which are not nearly all: on a read-only disk none can be compiled later.
"""

import compileall
import importlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

ENTRIES = (
    "driver.cli.check",
    "driver.cli.run",
    "driver.cli.state",
    "driver.nri.process",
    "driver.serve",
    "driver.solving.worker",
    "solver.cpsat.search",
    "topologies.terminal.drawing",
    "topologies.terminal.render",
)
"""Modules that load all others between them."""

UNUSED = ("**/tests", "numpy/f2py", "pygments", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.[ach]", "**/*.hpp")

ORTOOLS = {"__init__.py", ".libs", "sat", "util"}
"""What CP-SAT needs of OR-tools."""


def unused(packages: Path) -> Iterator[Path]:
    """Files and folders that the driver does without."""
    for pattern in UNUSED:
        yield from packages.glob(pattern)
    yield from (path for path in (packages / "ortools").iterdir() if path.name not in ORTOOLS)


def remove(path: Path) -> None:
    """The file, or the folder with all that is in it, unless it went with a folder above."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def loaded(packages: Path) -> set[Path]:
    """Sources that Python has read for the entries, its own library's included."""
    for name in ENTRIES:
        importlib.import_module(name)
    files = {getattr(module, "__file__", None) for module in sys.modules.values()}
    return {Path(file) for file in files if file and file.endswith(".py") and packages in Path(file).parents}


def compile_all(sources: set[Path]) -> None:
    """Compile them, to be taken as they are: the image's files may be given other times."""
    for source in sorted(sources):
        if not compileall.compile_file(source, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
            raise SystemExit(f"{source} cannot be compiled")


def main() -> None:
    """Do it, and say how large the environment is then."""
    packages = Path(sysconfig.get_path("purelib"))
    for path in list(unused(packages)):
        remove(path)
    compile_all(loaded(packages))
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    print(f"{packages}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
