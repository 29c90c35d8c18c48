"""This node, as it is read when the driver starts."""

import tempfile
from pathlib import Path

import pytest

from driver.config import Config
from driver.host import Host
from tests.driver.sysfs import write_sysfs
from topologies import synthetic

ONLINE = "sys/devices/system/cpu/online"
MACHINE = synthetic.build("numa:3 core:2 cpu:1")


def test_numa_nodes_without_memory_are_those_that_the_kernel_does_not_list(tmp_path: Path) -> None:
    root = write_sysfs(tmp_path, MACHINE)
    for text, without in ((None, set()), ("0-2", set()), ("0,2", {1}), ("junk", set())):
        if text is not None:
            (root / "sys/devices/system/node/has_memory").write_text(f"{text}\n")
        assert Host.read(Config(), root).cpus.memoryless == without


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def under_overlay(tmp_path: Path, texts: str) -> Config:
    file = tmp_path / "overlay.yaml"
    file.write_text(texts)
    return Config.model_validate({"sysfsOverlay": str(file)})


def test_an_overlay_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    root = write_sysfs(tmp_path / "root", MACHINE)
    config = under_overlay(tmp_path, '/sys/devices/system/cpu/isolated: "3"')
    host = Host.read(config, root)
    assert host.cpus.isolated == {3}
    assert not list(temporary.iterdir())
    (root / ONLINE).write_text("0-2\n")
    assert host.online() == {0, 1, 2}


def test_cpus_that_the_overlay_names_as_online_stay_so(tmp_path: Path, temporary: Path) -> None:
    root = write_sysfs(tmp_path / "root", MACHINE)
    host = Host.read(under_overlay(tmp_path, '/sys/devices/system/cpu/online: "0-3"'), root)
    assert host.topology.online == {0, 1, 2, 3}
    (root / ONLINE).write_text("0\n")
    assert host.online() == {0, 1, 2, 3}
