"""Tells performance CPUs from efficiency CPUs by numbers that grow with speed."""

from collections.abc import Mapping
from itertools import pairwise

from models.request import CoreType

CLASS_GAP = 1.25
"""Two classes lie at least this factor apart.

Capacities within one class differ by a few per cent (favoured cores, clusters with other clocks); between the
classes of big.LITTLE, Alder Lake or GB10 the factor is 1.3 and more.
"""


def by_capacity(capacities: Mapping[int, int]) -> dict[int, CoreType]:
    """Core type per CPU from its capacity, split at the widest gap; empty where no clear gap shows.

    The numbers are Linux' ``cpu_capacity`` or ACPI's ``highest_perf``: dimensionless, larger is faster.
    """
    steps = sorted({value for value in capacities.values() if value > 0})
    gaps = [(high / low, high) for low, high in pairwise(steps)]
    widest, threshold = max(gaps, default=(1.0, 0))
    if widest < CLASS_GAP:
        return {}
    return {cpu: "performance" if value >= threshold else "efficiency" for cpu, value in capacities.items()}
