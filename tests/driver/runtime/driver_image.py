"""The driver's image: ``deploy/Containerfile``, built by buildah on a base of Debian's packages, only unpacked.

It is built once for all that it is made of, and kept in the cache of the tests. Needs root; on a machine that
checks changes (``CI=true``) buildah is installed where there is none.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.driver.runtime.archive import OLDEST, Archive, UnavailableError, cached, run, unpack

ROOT = Path(__file__).resolve().parents[3]
CONTAINERFILE = ROOT / "deploy/Containerfile"

NAME = "docker.io/library/cpusat-driver:0.1.0"
"""What a runtime takes the DaemonSet's ``cpusat-driver:0.1.0`` for."""

BASE = ("python3", "python3-venv", "dash", "libstdc++6")
"""Packages of the image that the driver's is built on. The shell is for the build alone."""

NEEDLESS = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache")

CERTIFICATES = Path("/etc/ssl/certs")
"""Of this machine; the build's, too."""

PREFIX = "driver-image-"
KEPT = 3
"""Images in the cache; other versions of the project may be tested at the same time."""


class ImpossibleError(UnavailableError):
    """No image can be built here, whatever is installed."""


def driver_image() -> Path:
    """The image as an OCI archive. Raises ``UnavailableError`` where it cannot be built, ``RuntimeError`` if that
    fails."""
    if os.geteuid():
        raise ImpossibleError("only root can build images")
    if not _is_mounted(Path("/")):
        raise ImpossibleError("the root is a folder (chroot), and buildah needs one that is mounted")
    _need_buildah()
    return cached(f"{PREFIX}{_fingerprint()}", _fill) / "image.tar"


def _is_mounted(folder: Path) -> bool:
    """Whether the kernel's list of mounts has the folder (proc_pid_mountinfo(5)): the root that ``chroot`` makes
    is not in it."""
    return any(line.split()[4] == str(folder) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _need_buildah() -> None:
    if shutil.which("buildah"):
        return
    if os.environ.get("CI") != "true":
        raise UnavailableError("there is no buildah here: apt-get install buildah")
    cached("buildah", lambda *_: _install("buildah"))


def _install(package: str) -> None:
    """Alone, for apt's own lock makes others fail."""
    run(["apt-get", "-q", "update"])
    run(["apt-get", "-q", "-y", "--no-install-recommends", "-oDPkg::Lock::Timeout=120", "install", package])


def sources() -> Iterator[Path]:
    """All files that the image is made of."""
    for line in CONTAINERFILE.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            for each in words[1:-1]:
                found = [ROOT / each, *(ROOT / each).rglob("*")]
                yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)
    yield from (CONTAINERFILE, CONTAINERFILE.with_name("Containerfile.dockerignore"), Path(__file__))


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(sources()):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _fill(root: Path, work: Path) -> None:
    _forget_old(work.parent)
    buildah = Buildah(work / "storage")
    buildah.make_base(_unpacked(work), "base")
    buildah.build("base", "driver")
    buildah("push", "driver", f"oci-archive:{root / 'image.tar'}:{NAME}")


def _forget_old(cache: Path) -> None:
    images = sorted(cache.glob(f"{PREFIX}*"), key=lambda path: path.stat().st_mtime)
    for each in images[: max(0, len(images) + 1 - KEPT)]:
        shutil.rmtree(each, ignore_errors=True)


def _unpacked(work: Path) -> Path:
    """A root of Python and a shell alone: no package is set up, and no package manager is there."""
    root = work / "base"
    root.mkdir()
    archive = Archive(work / "apt", (OLDEST,))
    unpack(archive.download_all(*BASE), root)
    for each in NEEDLESS:
        shutil.rmtree(root / each, ignore_errors=True)
    (root / "tmp").mkdir(mode=0o1777)
    return root


class Buildah:
    """buildah with images of its own in a folder."""

    def __init__(self, storage: Path) -> None:
        storage.mkdir()
        places = ["--root", str(storage / "root"), "--runroot", str(storage / "run"), "--storage-driver", "vfs"]
        self._command = ["buildah", *places]

    def __call__(self, *words: str) -> str:
        """What it prints. Raises ``RuntimeError`` with its last words."""
        return _run([*self._command, *words])

    def make_base(self, root: Path, name: str) -> None:
        """An image of a folder's content."""
        container = self("from", "scratch").strip()
        self("add", "--quiet", container, str(root), "/")
        self("commit", "--quiet", "--rm", container, name)

    def build(self, base: str, name: str) -> None:
        """The driver's image on a base."""
        flags = ["--isolation", "chroot", "--network", "host", "--layers=false", "--timestamp", "0"]
        mounts = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.is_dir() else []
        argument = f"BASE=localhost/{base}"
        self("build", *flags, *mounts, "--build-arg", argument, "-f", str(CONTAINERFILE), "-t", name, str(ROOT))


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout
