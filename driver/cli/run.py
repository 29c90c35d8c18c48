"""``cpusat-driver run``: the driver itself. Its flags are those of dra-driver-cpu, and go over the file."""

from collections.abc import Callable
from pathlib import Path

import click

from driver.config import Config, read_config
from driver.logs import configure
from models import BadInputError

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

EXTRA = {"google", "grpc", "httpx2", "lightkube", "prometheus_client"}
"""Packages that come with the extra ``driver`` only."""


def run(config: Path | None, verbosity: int, **flags: object) -> None:
    """Serve the kubelet and the container runtime of this node."""
    settings = read_config(config, **flags)
    configure(verbose=verbosity > USUAL_VERBOSITY)
    _serve()(settings)


def _serve() -> Callable[[Config], None]:
    """What serves. Raises ``BadInputError`` where its libraries are not installed: they are an extra."""
    try:
        from driver.serve import run as serve
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in EXTRA:
            raise
        reason = f"the driver needs {error.name}, which is not installed"
        raise BadInputError(f"{reason}; install cpusat with its extra: pip install 'cpusat[driver]'") from None
    return serve


command = click.Command("run", callback=run, params=[CONFIG, *FLAGS, *DEPRECATED, VERBOSITY], help=run.__doc__)
