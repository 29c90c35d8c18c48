"""What a call of the kubelet costs at least, measured beside the others: this machine may be shared and noisy."""

from pathlib import Path
from statistics import median

from tests.driver.kubelet.bare import call_times, serving

WARM_UP, CALLS = 20, 100


def bare_call(folder: Path) -> float:
    """Median time in milliseconds of a gRPC call whose handler flushes one file in the folder, and no more."""
    with serving(folder) as socket:
        return 1000 * median(call_times(socket, WARM_UP + CALLS)[WARM_UP:])
