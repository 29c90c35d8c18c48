"""A real container runtime from Debian's packages, unpacked into a folder of the tests: nothing is installed.

Debian 13 and unstable bring two versions of containerd; their runc wants a newer C library than Debian 12 has,
whose own runc serves both.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITES = {"trixie": ("containerd", "busybox-static"), "sid": ("containerd",), "bookworm": ("runc",)}
TIMEOUT = 300


class NotAvailableError(Exception):
    """The runtime cannot be had here, and why."""


@dataclass(frozen=True)
class Binaries:
    """The programs of one containerd."""

    containerd: Path
    ctr: Path
    runc: Path
    busybox: Path
    version: str

    @property
    def path(self) -> str:
        """A search path on which containerd finds its shims."""
        return f"{self.containerd.parent}:{os.environ['PATH']}"


def cache() -> Path:
    """Where packages stay from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "cpusat-tests"


def fetch(suite: str) -> Binaries:
    """The binaries of a suite's containerd. Raises ``NotAvailableError``."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise NotAvailableError(f"there is no {program}")
    folders = {each: _unpacked(each) for each in SUITES}
    roots = [folders["trixie"] / "usr/bin/busybox", folders["trixie"] / "bin/busybox"]
    return Binaries(
        containerd=folders[suite] / "usr/bin/containerd",
        ctr=folders[suite] / "usr/bin/ctr",
        runc=folders["bookworm"] / "usr/sbin/runc",
        busybox=next(each for each in roots if each.exists()),
        version=_version(folders[suite].parent),
    )


def _version(folder: Path) -> str:
    """Of containerd, as its package is named."""
    (package,) = (folder / "debs").glob("containerd_*")
    return package.name.split("_")[1]


def _unpacked(suite: str) -> Path:
    """The packages of a suite, unpacked; downloaded if they are not there yet."""
    folder = cache() / suite
    with _only_one(suite):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _download(suite, folder)
            for package in folder.glob("debs/*.deb"):
                _run("dpkg", "-x", str(package), str(folder / "root"))
            (folder / "done").touch()
    return folder / "root"


@contextmanager
def _only_one(suite: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(suite: str, folder: Path) -> None:
    for name in ("lists/partial", "cache/archives/partial", "debs"):
        (folder / name).mkdir(parents=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb {_mirror()} {suite} main\n")
    options = [
        f"-oDir::Etc::SourceList={sources}",
        "-oDir::Etc::SourceParts=/dev/null",
        f"-oDir::State::Lists={folder / 'lists'}",
        f"-oDir::Cache={folder / 'cache'}",
        "-oAPT::Sandbox::User=root",
        "-oAcquire::Retries=2",
    ]
    _run("apt-get", *options, "update", "-q")
    _run("apt-get", *options, "download", *SUITES[suite], where=folder / "debs")


def _mirror() -> str:
    """The mirror of Debian that this machine uses."""
    for path in (*Path("/etc/apt").glob("sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        text = path.read_text()
        found = re.search(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+/debian/?)\s*", text, re.MULTILINE)
        if found:
            return found[1]
    raise NotAvailableError("no mirror of Debian is configured")


def _run(*command: str, where: Path | None = None) -> None:
    try:
        subprocess.run(command, cwd=where, check=True, capture_output=True, timeout=TIMEOUT)
    except subprocess.CalledProcessError as error:
        raise NotAvailableError(f"{' '.join(command[:1])}: {error.stderr.decode()[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(str(error)) from None
