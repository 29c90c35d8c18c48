from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.cluster.api import Api
from tests.driver.cluster.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer, tmp_path: Path) -> Api:
    return Api.connect(str(server.kubeconfig(tmp_path / "kubeconfig")))
