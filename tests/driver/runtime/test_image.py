"""The image that ``deploy/Containerfile`` makes: what is in it, and what is not."""

import re
from pathlib import Path, PurePosixPath

import pytest

from driver.nri.link import PROGRAM as RUNTIME_PROGRAM
from driver.solving.process import PROGRAM as SOLVER_PROGRAM
from tests.driver.runtime.driver_image import ROOT
from tests.driver.runtime.oci import Image, Layer, read_image

LARGEST = 240e6
"""Bytes of our layer: 155 MB are libraries that CP-SAT and gRPC load, 27 MB compiled modules."""

PACKAGES = ("models", "topologies", "solver", "driver", "cpusat")


@pytest.fixture(scope="module")
def built(driver_image: Path) -> Image:
    return read_image(driver_image)


@pytest.fixture(scope="module")
def layer(built: Image) -> Layer:
    """All that we add to the base."""
    return built.layers[-1]


@pytest.fixture(scope="module")
def packages(layer: Layer) -> dict[PurePosixPath, int]:
    """Files of the environment's packages, and their sizes."""
    found = {}
    for name, size in layer.sizes.items():
        if match := re.fullmatch(r"opt/cpusat/lib/python3\.\d+/site-packages/(.+)", name):
            found[PurePosixPath(match[1])] = size
    return found


def test_it_runs_the_driver_as_nobody(built: Image) -> None:
    assert built.config["User"] == "65532:65532"
    assert built.config["Entrypoint"] == ["/opt/cpusat/bin/cpusat-driver"]
    assert "Cmd" not in built.config or not built.config["Cmd"]


def test_it_adds_the_environment_and_nothing_else(layer: Layer) -> None:
    assert {PurePosixPath(name).parts[:2] for name in layer.sizes} == {("opt", "cpusat")}
    assert sum(layer.sizes.values()) < LARGEST


def test_it_has_no_tools_no_tests_and_no_sources_of_libraries(packages: dict[PurePosixPath, int]) -> None:
    assert not {"pip", "setuptools", "wheel", "grpc_tools", "pytest"} & {path.parts[0] for path in packages}
    assert not [path for path in packages if "tests" in path.parts]
    assert not [path for path in packages if path.suffix in {".pyi", ".pyx", ".pxd", ".h", ".hpp", ".c", ".a"}]
    ortools = {path.parts[1] for path in packages if path.parts[0] == "ortools"}
    assert ortools == {"__init__.py", "__pycache__", ".libs", "sat", "util"}


def test_it_has_every_module_and_data_file_of_ours(packages: dict[PurePosixPath, int]) -> None:
    suffixes = {".py", ".json", ".typed"}
    files = (path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*"))
    wanted = {PurePosixPath(path) for path in files if path.suffix in suffixes and "__pycache__" not in path.parts}
    assert not wanted - packages.keys()


def test_it_has_the_locked_versions(packages: dict[PurePosixPath, int]) -> None:
    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "_", name).lower()

    lock = (ROOT / "deploy/locks/driver.txt").read_text()
    locked = {f"{plain(name)}-{version}" for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)}
    there = {path.parts[0].removesuffix(".dist-info") for path in packages if path.parts[0].endswith(".dist-info")}
    found = {"-".join((plain(name), version)) for name, _, version in (each.rpartition("-") for each in there)}
    assert {each for each in found if not each.startswith("cpusat-")} == locked


@pytest.mark.parametrize(
    "module", ["driver.serve", RUNTIME_PROGRAM, SOLVER_PROGRAM, "ortools.sat.python.cp_model", "pandas", "grpc"]
)
def test_what_the_driver_loads_is_compiled(packages: dict[PurePosixPath, int], module: str) -> None:
    *folders, name = module.split(".")
    sources = [PurePosixPath(*folders, f"{name}.py"), PurePosixPath(*folders, name, "__init__.py")]
    (source,) = [each for each in sources if each in packages]
    assert [
        path
        for path in packages
        if path.parent == source.parent / "__pycache__" and path.name.startswith(source.stem)
    ]


def test_what_it_never_loads_is_not_compiled(packages: dict[PurePosixPath, int]) -> None:
    compiled = sum(1 for path in packages if path.suffix == ".pyc")
    assert 0 < compiled < 0.8 * sum(1 for path in packages if path.suffix == ".py")
