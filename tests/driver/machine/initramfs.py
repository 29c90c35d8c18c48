"""What the machine's kernel begins with: busybox, modules, our first process and the command that it comes to."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.driver.machine.packages import Emulator

INIT = Path(__file__).with_name("init.sh")
TEMPORARY = "/cpusat-tmp"
"""A folder in memory, by a name that leaves room for those of sockets."""

FOLDERS = ("bin", "dev", "host", "memory", "modules", "proc", "root", "sys")

COMMAND = """exec </dev/null >/dev/ttyS1 2>&1
mkdir {temporary}
cd {folder}
env -i {environment} {command}
echo "exit $?"
echo o >/proc/sysrq-trigger
sleep 1000
"""
"""The second serial port is our standard output; ``o`` switches off (kernel's admin guide, ``sysrq``)."""


def write_initramfs(
    emulator: Emulator, command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Path:
    """The files that the kernel begins with: the command, and what it takes to get to it."""
    root, target = folder / "initramfs", folder / "initramfs.cpio"
    for each in FOLDERS:
        (root / each).mkdir(parents=True)
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    shutil.copy(emulator.busybox, root / "bin/busybox")
    for number, module in enumerate(emulator.modules):
        shutil.copy(module, root / "modules" / f"{number:02}-{module.name}")
    variables = shlex.join(f"{name}={value}" for name, value in environment.items())
    script = COMMAND.format(
        temporary=TEMPORARY,
        folder=shlex.quote(str(Path.cwd())),
        environment=variables,
        command=shlex.join(command),
    )
    (root / "command").write_text(script)
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    pack = [str(emulator.busybox), "cpio", "-o", "-H", "newc"]
    with target.open("wb") as archive:
        subprocess.run(pack, cwd=root, input=names.encode(), stdout=archive, stderr=subprocess.DEVNULL, check=True)
    return target
