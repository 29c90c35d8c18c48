"""Faults of a driver's disk, and its death in the midst of a call."""

import json
from pathlib import Path

import grpc

from driver.ports import ClaimRef
from tests.driver.runtime.node import Node

FAULTS = Path(__file__).parent / "faults"


class Faults:
    """What befalls a node's driver when it writes to its disk (``faults/sitecustomize.py``)."""

    def __init__(self, node: Node) -> None:
        self._node, self._folder = node, node.folder / "faults"
        self._folder.mkdir()
        plugin = node.folder / "k/plugins/dra.cpu"
        folders = (plugin / "ledger", plugin / "dra-device-metadata", node.containerd.cdi_dir)
        self._spoilt = list(map(str, folders))
        node.environment = {"PYTHONPATH": str(FAULTS), "CPUSAT_FAULTS": str(self._folder)}

    @property
    def steps(self) -> list[str]:
        """What the driver was about to do since the last order: the last of it is what never happened."""
        lines = (self._folder / "steps").read_text().splitlines()
        return [f"{line.split()[0]} {Path(line.split()[1]).name}" for line in lines]

    def order(self, **orders: float) -> None:
        """From now on, with steps counted anew: ``kill_at`` a step, or ``stall`` seconds at step ``stall_at``."""
        (self._folder / "steps").write_text("")
        (self._folder / "orders.json").write_text(json.dumps({"folders": self._spoilt, **orders}))

    def none(self) -> None:
        """No more of it."""
        (self._folder / "orders.json").unlink(missing_ok=True)

    def kills(self, call: str, ref: ClaimRef, step: int) -> bool:
        """Call the driver (``prepare``, ``unprepare``), which is killed right before that step of it.

        Whether there was such a step; then the driver has ended.
        """
        self.order(kill_at=step)
        try:
            getattr(self._node.kubelet, call)(ref)
            return False
        except grpc.RpcError:
            self._node.end_driver()
            return True
        finally:
            self._node.steps.append(f"  {call}: {self.steps[-1] if len(self.steps) == step else 'all done'}")
            self.none()
