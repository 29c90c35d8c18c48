"""The image's locks: everything that the project asks for, each with a version and the hashes of its files."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "deploy/locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PINNED = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^\s;]+)(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)

IMAGE = {"sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython", "os_name": "posix"}


def entries(name: str) -> list[str]:
    """Entries of a lock, each in one line."""
    return (LOCKS / name).read_text().replace(" \\\n   ", "").splitlines()


def versions(name: str) -> dict[str, Version]:
    """Locked versions by canonical name."""
    found = [match for each in entries(name) if (match := PINNED.fullmatch(each))]
    return {canonicalize_name(match["name"]): Version(match["version"]) for match in found}


@pytest.mark.parametrize("name", ["driver.txt", "build.txt"])
def test_a_lock_is_versions_and_hashes_and_nothing_else(name: str) -> None:
    assert entries(name)
    assert [each for each in entries(name) if not PINNED.fullmatch(each)] == []
    assert len(versions(name)) == len(entries(name))


def asked() -> list[Requirement]:
    """What the driver needs by the word of the project."""
    extras = PROJECT["project"]["optional-dependencies"]
    return [Requirement(each) for each in [*PROJECT["project"]["dependencies"], *extras["driver"]]]


def needed(wanted: list[Requirement]) -> Iterator[Requirement]:
    """These, and what they need in turn by the word of the versions that are installed here."""
    seen: set[str] = set()
    while wanted:
        each = wanted.pop()
        if str(each) in seen:
            continue
        seen.add(str(each))
        yield each
        for extra in ("", *each.extras):
            environment = {**IMAGE, "extra": extra}
            found = [Requirement(text) for text in metadata.requires(each.name) or ()]
            wanted += [other for other in found if other.marker is None or other.marker.evaluate(environment)]


def test_the_drivers_lock_has_all_that_the_project_asks_for() -> None:
    locked = versions("driver.txt")
    bad = {str(each): locked.get(canonicalize_name(each.name)) for each in asked() if not _is_met(each, locked)}
    assert bad == {}, "renew the lock: deploy/locks/README.md says how"


def test_the_drivers_lock_has_what_that_needs_in_turn() -> None:
    locked = versions("driver.txt")
    missing = {each.name for each in needed(asked()) if canonicalize_name(each.name) not in locked}
    assert missing == set(), "renew the lock: deploy/locks/README.md says how"


def test_the_builds_lock_has_the_build_system() -> None:
    locked = versions("build.txt")
    assert all(_is_met(Requirement(each), locked) for each in PROJECT["build-system"]["requires"])


def _is_met(requirement: Requirement, locked: dict[str, Version]) -> bool:
    version = locked.get(canonicalize_name(requirement.name))
    return version is not None and version in requirement.specifier


def test_the_image_is_built_from_the_locks_alone() -> None:
    text = (ROOT / "deploy/Containerfile").read_text().replace("\\\n", "")
    for line in (each for each in text.splitlines() if "pip" in each and " install " in each):
        locked = "--require-hashes -r deploy/locks/" in line
        assert locked or "--no-index --no-deps" in line, line
    (wheel,) = [each for each in text.splitlines() if "pip wheel" in each]
    assert "--no-deps --no-build-isolation" in wheel
