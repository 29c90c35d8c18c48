"""Where the kubelet expects the plugin, and where the plugin keeps what it knows."""

from dataclasses import dataclass
from pathlib import Path

from driver.names import DRIVER
from driver.node_name import FILE


@dataclass(frozen=True)
class Folders:
    """Where the kubelet expects the plugin.

    ``pod``: the uid of the driver's pod, which then is part of the sockets' names, so that the kubelet (1.33 and
    later) can tell a new pod from the old one.
    """

    root: Path
    pod: str = ""

    @property
    def plugin(self) -> Path:
        """The plugin's own folder. Who has locked it serves the node; all pods of the driver share it."""
        return self.root / "plugins" / DRIVER

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for plugins."""
        return self.root / "plugins_registry"

    @property
    def pod_resources(self) -> Path:
        """The socket of the kubelet's pod-resources API."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def cpu_manager_state(self) -> Path:
        """The checkpoint of the kubelet's CPU manager."""
        return self.root / "cpu_manager_state"

    @property
    def ledger(self) -> Path:
        """The ledger's folder."""
        return self.plugin / "ledger"

    @property
    def metadata(self) -> Path:
        """Where the files lie in which containers read what devices they have been given."""
        return self.plugin / "dra-device-metadata"

    @property
    def node_name(self) -> Path:
        """Where the driver leaves its node's name."""
        return self.plugin / FILE

    @property
    def socket(self) -> Path:
        """Where claims are served."""
        return self.plugin / (f"dra-{self.pod}.sock" if self.pod else "dra.sock")

    @property
    def registration(self) -> Path:
        """Where the kubelet finds us."""
        return self.registry / (f"{DRIVER}-{self.pod}-reg.sock" if self.pod else f"{DRIVER}-reg.sock")
