"""What lies in ``deploy/``: as it is written, and as kustomize builds it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.driver.runtime.archive import Archive, UnavailableError, cached, unpack

Document = dict[str, Any]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BASE, OVERLAYS, EXAMPLES = DEPLOY / "base", DEPLOY / "overlays", DEPLOY / "examples"
COMPONENTS = DEPLOY / "components"
KUSTOMIZED = [BASE, *sorted(path for path in OVERLAYS.iterdir() if path.is_dir())]
NOT_OBJECTS = {"kustomization.yaml", "config.yaml", "names.yaml"}
FILES = sorted(path for path in DEPLOY.rglob("*.yaml") if path.name not in NOT_OBJECTS)
BASE_FILES = [path for path in FILES if path.parent == BASE]

KUBECTL_SUITE = "trixie"
"""Debian's, whose kubectl needs no library."""


def documents(*files: Path) -> list[Document]:
    """All objects of these files."""
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> list[Document]:
    """Objects of a kind in any file."""
    return [each for each in documents(*FILES) if each["kind"] == kind]


def only(kind: str, among: list[Document] | None = None) -> Document:
    """The one object of a kind in the base, or among others."""
    (found,) = [each for each in among or documents(*BASE_FILES) if each["kind"] == kind]
    return found


def kubectl() -> str:
    """The machine's kubectl, or Debian's out of the cache of the tests. Skips the test where there is neither."""
    if found := shutil.which("kubectl"):
        return found
    try:
        return str(cached("kubectl", _fill) / "usr/bin/kubectl")
    except UnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no kubectl can be had to build a kustomization with: {error}")


def _fill(root: Path, work: Path) -> None:
    unpack(Archive(work, (KUBECTL_SUITE,)).download(f"kubectl/{KUBECTL_SUITE}"), root)


def built(folder: Path, home: Path) -> list[Document]:
    """What kustomize makes of a folder."""
    run = subprocess.run(
        [kubectl(), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


def kustomized(home: Path, kustomization: Mapping[str, Any]) -> list[Document]:
    """What a cluster's own kustomization builds, in a folder beside ``deploy/``."""
    if not (home / "deploy").exists():
        shutil.copytree(DEPLOY, home / "deploy")
    own = home / "my-cluster"
    own.mkdir(exist_ok=True)
    (own / "kustomization.yaml").write_text(yaml.safe_dump(dict(kustomization)))
    return built(own, home)
