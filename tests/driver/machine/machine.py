"""A small machine of two sockets, each with a NUMA node of two cores with two threads, emulated: it needs no KVM.

Its files are the host's, read-only below a layer in memory. A command is run in it, and it is switched off.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.driver.machine.initramfs import write_initramfs
from tests.driver.machine.packages import Emulator
from tests.driver.runtime.enclosure import Enclosure

NODES, CORES, THREADS, MEBIBYTES = 2, 2, 2, 1024
"""NUMA nodes; cores and memory of each; threads of a core."""

PROCESSOR = "Nehalem"
"""The oldest that has all that numpy needs: vector instructions of newer ones are slow where they are emulated."""

KERNEL = "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off"


class MachineError(Exception):
    """It has not come to an end in time. The message has its last words."""


def run(
    emulator: Emulator, command: Sequence[str], environment: Mapping[str, str], folder: Path, patience: float
) -> str:
    """What the command prints in a new machine, in our current folder; its last line is ``exit <code>``.

    ``folder``: for files of the machine's. After ``patience`` seconds it is switched off, whatever it does.
    """
    initramfs = write_initramfs(emulator, command, environment, folder)
    output, console = folder / "output", folder / "console"
    console.touch()
    hardware = [*_hardware(), "-serial", f"file:{console}", "-serial", "stdio"]
    system = ["-kernel", str(emulator.kernel), "-initrd", str(initramfs), "-append", KERNEL]
    with Enclosure() as enclosure, output.open("wb") as log:
        machine = enclosure.spawn([*emulator.command, *hardware, *system], emulator.environment, log)
        until = time.monotonic() + patience
        while not machine.ended and time.monotonic() < until:
            time.sleep(0.1)
        in_time = machine.ended
    said = output.read_text(errors="replace").replace("\r", "")
    if not in_time or not said.rpartition("\nexit ")[1]:
        raise MachineError(f"{said[-3000:]}\n{console.read_text(errors='replace')[-3000:]}")
    return said


def _hardware() -> list[str]:
    cpus = CORES * THREADS
    flags = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    flags += ["-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-m", f"{NODES * MEBIBYTES}M"]
    flags += ["-smp", f"{NODES * cpus},sockets={NODES},cores={CORES},threads={THREADS}"]
    for node in range(NODES):
        flags += ["-object", f"memory-backend-ram,id=m{node},size={MEBIBYTES}M"]
        flags += ["-numa", f"node,nodeid={node},memdev=m{node},cpus={node * cpus}-{(node + 1) * cpus - 1}"]
    share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    return [*flags, "-virtfs", share]
