"""A real containerd with runc, CDI and NRI in a private folder, with namespaces and a cgroup of its own."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.driver.runtime import image, masks
from tests.driver.runtime.cri import CRI
from tests.driver.runtime.enclosure import Enclosed, Enclosure
from tests.driver.runtime.packages import Binaries

SNAPSHOTTER = "native"
"""Copies files, which works on every file system."""

COMMON = """
root = "{folder}/root"
state = "{folder}/state"

[grpc]
address = "{folder}/containerd.sock"

[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{folder}/nri.sock"
plugin_path = "{folder}/nri-plugins"
plugin_config_path = "{folder}/nri-conf"
plugin_registration_timeout = "5s"
plugin_request_timeout = "2s"
"""

RUNTIME = """
enable_cdi = true
cdi_spec_dirs = ["{folder}/cdi"]
disable_apparmor = true
restrict_oom_score_adj = true
"""

RUNC = """
[plugins."{plugin}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."{plugin}".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""

VERSION_1 = (
    "version = 2\n"
    + COMMON
    + """
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
disable_tcp_service = true
"""
    + RUNTIME
    + """
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
"""
    + RUNC
)

VERSION_2 = (
    "version = 3\n"
    + COMMON
    + """
[plugins."io.containerd.grpc.v1.cri"]
disable_tcp_service = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.cri.v1.runtime"]
"""
    + RUNTIME
    + RUNC
)


PREFIX = "cpusat-crt-"
"""Names of folders and cgroups; the process that made them follows."""


def sweep() -> None:
    """Remove what test runs have left that were killed. Their processes and mounts have gone with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            masks.remove_cgroups(folder.name)
            shutil.rmtree(folder, ignore_errors=True)


class Containerd:
    """Use it as a context manager: then it runs. ``stop``, ``kill`` and ``start`` leave containers running."""

    def __init__(self, binaries: Binaries) -> None:
        self.binaries = binaries
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self.cgroup = self.folder.name
        self.cri = CRI(self.folder / "containerd.sock", self.cgroup)
        self._is_new = not binaries.version.startswith("1.")
        self._enclosure: Enclosure | None = None
        self._process: Enclosed | None = None
        self._environment = {**os.environ, "PATH": binaries.path, "TMPDIR": str(self.folder)}

    @property
    def nri_socket(self) -> Path:
        return self.folder / "nri.sock"

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    @property
    def log(self) -> str:
        """What containerd has said so far."""
        return (self.folder / "log").read_text(errors="replace")

    def __enter__(self) -> "Containerd":
        try:
            self._write_config()
            self._enclosure = Enclosure()
            self.start()
            self.add_image(image.write_image(self.binaries.busybox, self.folder / "image.tar"))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it, and wait until it would run pods."""
        assert self._enclosure
        with (self.folder / "log").open("ab") as log:
            command = [str(self.binaries.containerd), "--config", str(self.folder / "config.toml")]
            self._process = self._enclosure.spawn(command, self._environment, log)
        self._wait(self.cri.is_ready)

    def stop(self) -> None:
        """Stop it as systemd would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with no time to tidy up."""
        self._end(signal.SIGKILL)

    def add_image(self, archive: Path) -> None:
        """Import the image of an OCI archive."""
        assert self._enclosure
        ctr = [str(self.binaries.ctr), "-a", str(self.folder / "containerd.sock"), "-n", "k8s.io"]
        local = ["--local"] if self._is_new else []
        command = [*ctr, "images", "import", *local, "--snapshotter", SNAPSHOTTER, str(archive)]
        self._enclosure.run(command, self._environment)

    def close(self) -> None:
        """End everything, and leave nothing behind: no process, mount, cgroup or file."""
        self.cri.close()
        if self._enclosure:
            self._enclosure.close()
        masks.remove_cgroups(self.cgroup)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self._process
        self._process.end(number)

    def _write_config(self) -> None:
        for each in ("cdi", "nri-plugins", "nri-conf"):
            (self.folder / each).mkdir()
        plugin = "io.containerd.cri.v1.runtime" if self._is_new else "io.containerd.grpc.v1.cri"
        text = (VERSION_2 if self._is_new else VERSION_1).format(
            folder=self.folder,
            image=image.NAME,
            plugin=plugin,
            runc=self.binaries.runc,
            snapshotter=SNAPSHOTTER,
        )
        (self.folder / "config.toml").write_text(text)

    def _wait(self, ready: Callable[[], bool], patience: float = 60.0) -> None:
        until = time.monotonic() + patience
        while not ready():
            assert self._process
            if self._process.ended or time.monotonic() > until:
                raise RuntimeError(f"containerd does not come up:\n{self.log[-3000:]}")
            time.sleep(0.05)
