"""containerd, runc and busybox out of Debian's archive."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.driver.runtime.archive import OLDEST, Archive, cached, run, unpack

SUITES = {"1.7": "trixie", "2.1": "sid"}
"""containerd's releases, and which of Debian's have them."""


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
        return run([str(self.containerd), "--version"]).split()[2]


def fetch(release: str) -> Binaries:
    """The release's programs, out of the cache or the archive. Raises ``UnavailableError``."""
    return Binaries(cached(f"containerd-{release}", partial(_fill, release)))


def _fill(release: str, root: Path, work: Path) -> None:
    suite = SUITES[release]
    archive = Archive(work, (suite, OLDEST))
    unpack(archive.download(f"containerd/{suite}", f"runc/{OLDEST}", f"busybox-static/{OLDEST}"), root)
    found = Binaries(root)
    for program in (found.containerd, found.runc):
        run([str(program), "--version"])
