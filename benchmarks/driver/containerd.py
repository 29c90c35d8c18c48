"""Prepare through a real containerd on this machine, beside containers whose masks every claim changes."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.driver.bare import bare_call
from benchmarks.driver.rows import CallRow, times
from benchmarks.driver.stages import mean_ms, read_stages
from benchmarks.timing import empty_solve
from tests.driver.runtime.containerd import Containerd
from tests.driver.runtime.node import Node
from tests.driver.runtime.packages import SUITES, fetch

NEIGHBOURS = (0, 10, 30)
"""Containers without a claim."""

CALLS = 30
"""Of each kind, after one to warm up. A claim has one CPU: this machine may have only two."""

RELEASES = tuple(SUITES)


def measure(release: str) -> Iterator[CallRow]:
    """Rows for Prepare and Unprepare, with more and more neighbours."""
    folder = tempfile.TemporaryDirectory(prefix="b")
    with folder, Containerd(fetch(release)) as containerd, Node(Path(folder.name), containerd).open() as node:
        for number in range(max(NEIGHBOURS) + 1):
            if number in NEIGHBOURS:
                yield from _rows(node, f"containerd {release}", number)
            node.run(name=f"n{number}")


def _rows(node: Node, runtime: str, neighbours: int) -> Iterator[CallRow]:
    beside, bare, stages = empty_solve(), bare_call(node.folder), read_stages(node.folder / "driver.log")
    prepared, unprepared = list[float](), list[float]()
    for _ in range(1 + CALLS):
        ref = node.claim()
        for call, seconds in ((node.prepare, prepared), (node.unprepare, unprepared)):
            began = time.perf_counter()
            call(ref)
            seconds.append(time.perf_counter() - began)
        node.check("unprepared")
    spent = mean_ms(stages, read_stages(node.folder / "driver.log"))
    for name, seconds in (("prepare", prepared[1:]), ("unprepare", unprepared[1:])):
        yield CallRow(
            machine=runtime,
            engine="cpsat",
            call=f"{name}, {neighbours} neighbours",
            calls=CALLS,
            **times(seconds, beside),
            bare=1000 * median(seconds) / bare,
            stages=spent if name == "prepare" else None,
        )
