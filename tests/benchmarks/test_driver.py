"""The driver's benchmark: what it counts, not how long things take."""

import json

from click.testing import CliRunner

from benchmarks.__main__ import main

SMALL = "socket:1 numa:2 l3:2 core:4 cpu:2"


def test_every_call_of_every_engine_is_counted_and_timed():
    words = [
        "driver",
        "--machine",
        SMALL,
        "--claims",
        "10",
        "--part",
        "solver",
        "--part",
        "prepare",
        "--output",
        "json",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["solver_start_seconds"][SMALL] > 0
    calls = {(row["engine"], row["call"]): row["calls"] for row in found["rows"]}
    for engine in ("cpsat", "greedy"):
        assert calls[engine, "prepare"] == 10
        assert sum(calls.get((engine, f"solve, {asked}"), 0) for asked in ("1 request", "2 requests")) == 10
    for row in found["rows"]:
        assert 0 < row["median_ms"] <= row["p99_ms"] <= row["worst_ms"]
        assert (row["driver_mb"] is None) == row["call"].startswith("solve")
        assert (row["solver_mb"] is None) == (row["engine"] == "greedy")
