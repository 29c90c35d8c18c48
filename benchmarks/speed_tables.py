"""What rows of speed say, as tables: each axis, growth, targets, proofs in time, the plain model, cold starts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.cold_start import ColdRow
from benchmarks.speed import WITHIN_MS, SpeedRow
from benchmarks.speed_points import LARGE, SERIES

POLICIES = ("packed", "distributed")

TARGETS: dict[str, tuple[float, float]] = {"distributed": (20, 80), "packed": (40, 150)}
"""Multiples of an empty solve that the median and the 99th percentile of a catalog machine should stay within."""

LARGE_TARGETS: dict[str, float] = {"distributed": 75, "packed": 150}
"""The same for the median on the large synthetic machine."""

GROWTH_FROM = {"cpus": 128, "numa": 1, "l3": 8}
"""Where growth is read from: below, what every solve costs hides it."""

PARTS: dict[str, Callable[[SpeedRow], float]] = {
    "build": lambda row: row.build_ms,
    "solve": lambda row: row.solve_ms,
    "total": lambda row: row.median_ms,
}


@dataclass(frozen=True)
class Sheet:
    """A table. The first ``texts`` columns are words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    texts: int = 1


def sheets(rows: Sequence[SpeedRow], cold: Sequence[ColdRow]) -> Iterator[Sheet]:
    """All tables that the rows have something for."""
    builders = (targets_sheet, plain_sheet, growth_sheet, within_sheet)
    found = [axis_sheet(rows, series) for series in SERIES if series not in ("catalog", "plain")]
    found += [build(rows) for build in builders] + [cold_sheet(cold), differences_sheet(rows)]
    yield from (sheet for sheet in found if sheet.lines)


def axis_sheet(rows: Sequence[SpeedRow], series: str) -> Sheet:
    """All engines along one axis."""
    columns = ("policy", "engine", SERIES[series].axis, "build", "solve", "median ms", "p99 ms", "x empty solve")
    lines = (
        (
            *(row.policy, row.engine, str(row.at)),
            *map(_ms, (row.build_ms, row.solve_ms, row.median_ms, row.p99_ms)),
            f"{row.ratio:.1f}",
            "" if row.engine == "greedy" else f"{row.proven}/{row.solves}",
        )
        for policy, engine in product(POLICIES, ("greedy", "auto", "cpsat"))
        for row in rows
        if (row.series, row.policy, row.engine) == (series, policy, engine)
    )
    return Sheet(SERIES[series].title, (*columns, "proven"), tuple(lines), texts=2)


def targets_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """Median and 99th percentile per machine as multiples of an empty solve; a mark where a target is missed."""
    mine = [row for row in rows if row.series == "catalog"]
    machines = dict.fromkeys(row.machine for row in mine)
    ratios = (f"{policy} {what}" for policy in TARGETS for what in ("median x", "p99 x"))
    columns = ("machine", "empty ms", "greedy ms", *ratios)
    lines = tuple(_machine_line({(r.policy, r.engine): r for r in mine if r.machine == name}) for name in machines)
    limits = ", ".join(f"{policy} {median:g} and {p99:g}" for policy, (median, p99) in TARGETS.items())
    return Sheet(f"proof on each machine, x an empty solve (targets: {limits}; * missed)", columns, lines)


def _machine_line(mine: dict[tuple[str, str], SpeedRow]) -> tuple[str, ...]:
    auto = {policy: mine[policy, "auto"] for policy in TARGETS}
    first = auto["packed"]
    ratios = (
        _against(value, most)
        for policy, row in auto.items()
        for value, most in zip((row.ratio, row.ratio_p99), targets_of(row), strict=True)
    )
    return first.machine, f"{first.empty_ms:.2f}", _ms(mine["packed", "greedy"].median_ms), *ratios


def targets_of(row: SpeedRow) -> tuple[float, float]:
    """What median and 99th percentile of a row are held against."""
    if row.machine == LARGE:
        return LARGE_TARGETS[row.policy], float("inf")
    return TARGETS[row.policy]


def _against(value: float, most: float) -> str:
    return f"{value:.1f}{'*' if value > most else ''}"


def plain_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """The plain model beside ours."""
    ours = {(r.at, r.policy): r.median_ms for r in rows if r.series == "plain" and r.engine == "auto"}
    lines = (
        (
            *(str(row.at), row.policy),
            *map(_ms, (ours[row.at, row.policy], row.median_ms)),
            f"{row.median_ms / ours[row.at, row.policy]:.0f}",
            f"{row.proven}/{row.solves}",
        )
        for row in rows
        if row.engine == "plain"
    )
    columns = ("CPUs", "policy", "ours ms", "plain ms", "times faster", "plain proves")
    return Sheet("a plain model (a Boolean per CPU, one weighted sum) beside ours", columns, tuple(lines), texts=2)


def growth_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """Exponents of growth along the axes that are numbers: 1 is in proportion."""
    lines = []
    for series, policy, engine in product(GROWTH_FROM, POLICIES, ("greedy", "auto", "cpsat")):
        mine = [r for r in rows if (r.series, r.policy, r.engine) == (series, policy, engine)]
        if len(points := [row for row in mine if int(row.at) >= GROWTH_FROM[series]]) > 1:
            exponents = (f"{exponent(points, part):.2f}" for part in PARTS.values())
            span = f"{points[0].at} to {points[-1].at}"
            lines.append((SERIES[series].axis, policy, engine, span, *exponents))
    columns = ("axis", "policy", "engine", "from … to", *PARTS)
    return Sheet("growth: exponents on log-log axes (1 is in proportion)", columns, tuple(lines), texts=4)


def exponent(points: Sequence[SpeedRow], part: Callable[[SpeedRow], float]) -> float:
    """Slope of the straight line nearest to the points on log-log axes."""
    sizes = np.log([float(row.at) for row in points])
    slope, _ = np.polyfit(sizes, np.log([max(part(row), 1e-3) for row in points]), 1)
    return float(slope)


def within_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """Of all solves, how many end by proof in so many milliseconds."""
    lines = []
    for series, policy, engine in product(SERIES, POLICIES, ("auto", "cpsat")):
        mine = [r for r in rows if (r.series, r.policy, r.engine) == (series, policy, engine)]
        if solves := sum(row.solves for row in mine):
            shares = (f"{100 * sum(row.within[i] for row in mine) / solves:.0f}" for i in range(len(WITHIN_MS)))
            tables = f"{100 * sum(row.by_dp for row in mine) / solves:.0f}"
            lines.append((SERIES[series].title, policy, engine, str(solves), *shares, tables))
    columns = ("what", "policy", "engine", "solves", *(f"in {ms} ms %" for ms in WITHIN_MS), "by dp %")
    return Sheet("solves that end by proof", columns, tuple(lines), texts=3)


def cold_sheet(cold: Sequence[ColdRow]) -> Sheet:
    """Cold starts."""
    lines = (
        (row.what, str(row.cpus or ""), f"{row.median_s:.2f}", f"{row.worst_s:.2f}", f"{row.peak_mb:.0f}")
        for row in cold
    )
    columns = ("started", "CPUs", "median s", "worst s", "resident MB")
    return Sheet("cold start, and memory at its peak", columns, tuple(lines))


def differences_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """Instances whose proven optimum depends on who proved it: there should be none."""
    texts = dict.fromkeys(text for row in rows for text in row.differing)
    return Sheet("DEFECT: proven optima that differ", ("instance",), tuple((text,) for text in texts))


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
