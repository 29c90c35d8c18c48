"""A real containerd of each release, and a node with it; skipped with the reason where none can run.

On a machine that checks changes (``CI=true``) it is an error that no containerd can be had, where one could run.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver.runtime.archive import UnavailableError
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.driver_image import ImpossibleError
from tests.driver.runtime.driver_image import driver_image as build_driver_image
from tests.driver.runtime.faulty import Faults
from tests.driver.runtime.masks import why_no_cpusets
from tests.driver.runtime.node import ONLINE, Node
from tests.driver.runtime.packages import SUITES, fetch


def why_not() -> str:
    """Why no containers can run on this machine; nothing where they can."""
    if os.geteuid():
        return "only root can run containers"
    if missing := [name for name in ("unshare", "nsenter") if shutil.which(name) is None]:
        return f"there is no {missing[0]} here"
    if len(ONLINE) < 2:
        return "a single CPU cannot be both given and shared"
    return why_no_cpusets()


@pytest.fixture(scope="session", params=SUITES, ids=lambda release: f"containerd-{release}")
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    if reason := why_not():
        pytest.skip(reason)
    try:
        binaries = fetch(request.param)
    except UnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no containerd can be had: {error}")
    with Containerd(binaries) as running:
        yield running


@pytest.fixture(scope="session")
def driver_image() -> Path:
    """The driver's image, as an archive."""
    try:
        return build_driver_image()
    except UnavailableError as error:
        if os.environ.get("CI") == "true" and not isinstance(error, ImpossibleError):
            raise
        pytest.skip(f"the driver's image cannot be built: {error}")


@pytest.fixture
def settings() -> dict[str, Any]:
    """Of the driver's configuration, beside those that make a node of this machine."""
    return {}


@pytest.fixture
def node(
    containerd: Containerd, short_path: Path, settings: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[Node]:
    """With API server, kubelet and driver; prints every step with the masks that the kernel had then."""
    node = Node(short_path, containerd, **settings)
    try:
        with node.open():
            yield node
            assert "Traceback" not in node.log()
    finally:
        print("\n".join([request.node.name, *node.steps]))


@pytest.fixture
def faults(node: Node) -> Faults:
    """The node's driver has been started anew, to be spoilt."""
    node.end_driver()
    faults = Faults(node)
    node.start_driver()
    return faults
