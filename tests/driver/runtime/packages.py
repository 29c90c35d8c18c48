"""containerd, runc and busybox out of Debian's archive, unpacked into a cache of this user: nothing is installed.

apt is given lists and a cache of its own, so it neither reads nor writes what it knows of the machine's packages.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITES = {"1.7": "trixie", "2.1": "sid"}
"""containerd's releases, and which of Debian's have them."""

OLDEST = "bookworm"
"""runc of the newer suites needs a newer C library than the oldest machine has that runs the tests."""

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_INDEX = re.compile(r"^'(\S+)/dists/[a-z]+/InRelease'", re.MULTILINE)


class UnavailableError(Exception):
    """There is no container runtime to be had here. The message says why."""


@dataclass(frozen=True)
class Binaries:
    """Programs of one release of containerd, below a folder that looks like ``/``."""

    root: Path

    @property
    def path(self) -> str:
        """Folders of programs, as in ``PATH``: the release's own before the machine's."""
        return ":".join([str(self.root / "usr/bin"), str(self.root / "usr/sbin"), os.environ.get("PATH", "")])

    @property
    def containerd(self) -> Path:
        return self.root / "usr/bin/containerd"

    @property
    def ctr(self) -> Path:
        return self.root / "usr/bin/ctr"

    @property
    def runc(self) -> Path:
        return self.root / "usr/sbin/runc"

    @property
    def busybox(self) -> Path:
        return next(path for path in (self.root / "usr/bin/busybox", self.root / "bin/busybox") if path.exists())

    @property
    def version(self) -> str:
        """What containerd says that it is."""
        return _run([str(self.containerd), "--version"]).split()[2]


def fetch(release: str) -> Binaries:
    """The release's programs, out of the cache or the archive. Raises ``UnavailableError``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpusat-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"containerd-{release}"
    with _locked(cache / "lock"):
        if not folder.exists():
            _unpack(release, folder)
    return Binaries(folder)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Alone among the workers of pytest-xdist, and among test runs."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _unpack(release: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as name:
        new = Path(name) / "root"
        new.mkdir()
        for package in _download(SUITES[release], Path(name)):
            _run(["dpkg", "-x", str(package), str(new)])
        found = Binaries(new)
        for program in (found.containerd, found.runc):
            _run([str(program), "--version"])
        new.rename(folder)


def _download(suite: str, folder: Path) -> list[Path]:
    for each in ("lists/partial", "cache/archives/partial", "debs"):
        (folder / each).mkdir(parents=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    archive = _archive()
    sources = folder / "sources.list"
    sources.write_text("".join(f"deb {signed}{archive} {each} main\n" for each in (suite, OLDEST)))
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    _run([*apt, "update", "--error-on=any"])
    wanted = (f"containerd/{suite}", f"runc/{OLDEST}", f"busybox-static/{OLDEST}")
    _run([*apt, "download", *wanted], cwd=folder / "debs")
    return sorted((folder / "debs").iterdir())


def _archive() -> str:
    """Where this machine has its packages from."""
    found = _INDEX.search(_run(["apt-get", "update", "--print-uris"]))
    if found is None:
        raise UnavailableError("the machine's sources of apt name no archive of Debian's")
    return found[1]


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
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
