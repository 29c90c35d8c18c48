"""``cpusat-driver run``: the driver itself. Its flags are those of dra-driver-cpu, and go over the file."""

from pathlib import Path

import click

from driver.config import read_config
from driver.logs import configure

CONFIG = click.Option(
    ["--config"], type=click.Path(path_type=Path), metavar="FILE", help="A YAML file; flags go over what it says."
)
FLAGS = (
    click.Option(["--kubeconfig"], metavar="FILE", help="For use outside of a cluster."),
    click.Option(
        ["--bind-address"], metavar="[HOST]:PORT", help="Of /metrics, /healthz, /readyz.  [default: :8080]"
    ),
    click.Option(
        ["--expose-pcie-roots"],
        type=bool,
        is_flag=False,
        flag_value=True,
        metavar="[BOOL]",
        help="Publish the PCIe roots near each device; needs the gate DRAListTypeAttributes.",
    ),
    click.Option(["--kubelet-root-dir"], metavar="DIR", help="[default: /var/lib/kubelet]"),
)
DEPRECATED = tuple(
    click.Option([f"--{name}"], hidden=True)
    for name in ("cpu-device-mode", "group-by", "reserved-cpus", "hostname-override", "sysfs-overlay")
)
"""Flags that dra-driver-cpu is about to drop in favour of the file."""

VERBOSITY = click.Option(
    ["--v", "verbosity"], type=click.IntRange(0), default=4, metavar="N", help="Above 4: log every step."
)
USUAL_VERBOSITY = 4


def run(config: Path | None, verbosity: int, **flags: object) -> None:
    """Serve the kubelet and the container runtime of this node."""
    settings = read_config(config, **flags)
    configure(verbose=verbosity > USUAL_VERBOSITY)
    from driver.serve import run as serve

    serve(settings)


command = click.Command("run", callback=run, params=[CONFIG, *FLAGS, *DEPRECATED, VERBOSITY], help=run.__doc__)
