"""Packages of Debian's archive, unpacked into a cache of this user: nothing is installed.

apt is given lists and a cache of its own, so it neither reads nor writes what it knows of the machine's packages.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

OLDEST = "bookworm"
"""The suite of the oldest machine that runs the tests; programs of newer suites may need a newer C library."""

_INDEX = re.compile(r"^'(\S+)/dists/[a-z]+/InRelease'", re.MULTILINE)


class UnavailableError(Exception):
    """There are no packages to be had here. The message says why."""


def cached(name: str, fill: Callable[[Path, Path], None]) -> Path:
    """The folder of this name in the cache. Where there is none, ``fill`` gets a new one, and one to work in."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpusat-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / name
    with _locked(cache / f".lock-{name}"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as work:
                new = Path(work) / "root"
                new.mkdir()
                fill(new, Path(work))
                new.rename(folder)
    return folder


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Alone among the workers of pytest-xdist, and among test runs."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Archive:
    """Suites of Debian's archive as apt sees them from a folder. Methods raise ``UnavailableError``."""

    def __init__(self, folder: Path, suites: Iterable[str]) -> None:
        self._debs = folder / "debs"
        for each in ("lists/partial", "cache/archives/partial", "debs"):
            (folder / each).mkdir(parents=True)
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        archive = _address()
        sources, self._nothing = folder / "sources.list", folder / "status"
        sources.write_text("".join(f"deb {signed}{archive} {each} main\n" for each in suites))
        self._nothing.touch()
        settings = {
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": 3,
        }
        self._archives = folder / "cache/archives"
        self._apt = ["apt-get", "-q", *_options(settings)]
        run([*self._apt, "update", "--error-on=any"])

    def download(self, *wanted: str) -> list[Path]:
        """These packages (``name/suite``) alone."""
        run([*self._apt, "download", *wanted], cwd=self._debs)
        return sorted(self._debs.iterdir())

    def download_all(self, *wanted: str) -> list[Path]:
        """These packages and all that they need, as on a machine that has nothing."""
        settings = {"Dir::State::status": self._nothing, "Debug::NoLocking": 1}
        flags = ["--download-only", "--yes", "--no-install-recommends"]
        run([*self._apt, *_options(settings), "install", *flags, *wanted])
        return sorted(self._archives.glob("*.deb"))


def unpack(packages: Iterable[Path], folder: Path) -> None:
    """Their files, below a folder."""
    for package in packages:
        run(["dpkg", "-x", str(package), str(folder)])


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What it prints. Raises ``UnavailableError`` with its last words."""
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"there is no {command[0]} here")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise UnavailableError(f"{command[0]} {command[-1]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _options(settings: dict[str, object]) -> list[str]:
    return [f"-o{name}={value}" for name, value in settings.items()]


def _address() -> str:
    """Where this machine has its packages from."""
    found = _INDEX.search(run(["apt-get", "update", "--print-uris"]))
    if found is None:
        raise UnavailableError("the machine's sources of apt name no archive of Debian's")
    return found[1]
