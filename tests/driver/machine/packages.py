"""An emulator of machines, a kernel for them and busybox, out of Debian's archive."""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.driver.runtime.archive import OLDEST, Archive, cached, unpack

PACKAGES = ("qemu-system-x86", "linux-image-amd64", "busybox-static")
"""The kernel for real machines: the one for clouds has no file system that is shared with the host."""

MODULES = (
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay"),
)
"""What the kernel needs to see the host's files, in the order of loading."""


@dataclass(frozen=True)
class Emulator:
    """Its files, below a folder that looks like ``/``. It runs with its own C library, whatever the host has."""

    root: Path

    @property
    def command(self) -> list[str]:
        """QEMU, with the folders of its firmware."""
        loader = self.root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
        libraries = ":".join(str(self.root / each / "x86_64-linux-gnu") for each in ("lib", "usr/lib"))
        firmware = (("-L", str(self.root / "usr/share" / each)) for each in ("qemu", "seabios"))
        program = str(self.root / "usr/bin/qemu-system-x86_64")
        return [str(loader), "--library-path", libraries, program, *chain(*firmware)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "QEMU_MODULE_DIR": str(self.root / "usr/lib/x86_64-linux-gnu/qemu")}

    @property
    def kernel(self) -> Path:
        return next((self.root / "boot").glob("vmlinuz-*"))

    @property
    def busybox(self) -> Path:
        return self.root / "bin/busybox"

    @property
    def modules(self) -> Iterable[Path]:
        return (self.root / "modules" / f"{each}.ko" for each in MODULES)


def fetch() -> Emulator:
    """Out of the cache or the archive. Raises ``UnavailableError``."""
    return Emulator(cached("machine", _fill))


def _fill(root: Path, work: Path) -> None:
    unpack(Archive(work, [OLDEST]).download_all(*PACKAGES), root)
    (root / "modules").mkdir()
    for each in MODULES:
        (file,) = (root / "lib/modules").rglob(f"{each}.ko")
        file.rename(root / "modules" / file.name)
    for rest in ("lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man"):
        shutil.rmtree(root / rest, ignore_errors=True)
