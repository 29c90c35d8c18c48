"""The whole driver: how long the kubelet waits for Prepare and Unprepare, and how big the driver gets."""

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.driver.bare import bare_call
from benchmarks.driver.claims import turnover
from benchmarks.driver.node import Node
from benchmarks.driver.rows import CallRow, times
from benchmarks.driver.solver import TIME_LIMIT
from benchmarks.driver.stages import mean_ms
from benchmarks.timing import empty_solve
from topologies.load import load


def measure(name: str, engine: str, claims: int, seed: int) -> Iterator[CallRow]:
    """A row for Prepare and one for Unprepare, after a tenth as many claims to warm up."""
    machine, warm_up = load(name), claims // 10
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder), machine, TIME_LIMIT[engine])
        with node.running():
            coming = turnover(claims + warm_up, len(machine.allocatable), seed, node.come, node.go)
            for _ in islice(coming, warm_up):
                pass
            early, beside, bare = node.memory(), empty_solve(), bare_call(node.folder)
            stages = node.stages()
            node.forget_times()
            for _ in coming:
                pass
            late, spent = node.memory(), mean_ms(stages, node.stages())
    instead = sum(each != engine for each in node.engines)
    for call, seconds in {"prepare": node.prepared, "unprepare": node.unprepared}.items():
        yield CallRow(
            machine=name,
            engine=engine,
            call=call,
            calls=len(seconds),
            **times(seconds, beside),
            bare=1000 * median(seconds) / bare,
            stages=spent if call == "prepare" else None,
            driver_mb=(early[0], late[0]),
            solver_mb=(early[1], late[1]) if engine == "cpsat" else None,
            answering_mb=(early[2], late[2]),
            fallbacks=instead if call == "prepare" else 0,
        )
