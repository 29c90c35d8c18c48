"""The driver's benchmark: what it counts, not how long things take."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.driver.attacks import HOPELESS, SIZES, Attack, _big_claims, hopeless, measure
from benchmarks.driver.node import Node
from benchmarks.driver.rows import ATTACK_HEADINGS
from tests.driver.cluster.waiting import until
from topologies import synthetic

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
        assert (row["bare"] is None) == row["call"].startswith("solve")
        assert (row["stages"] is None) == (row["call"] != "prepare")
        assert {"get", "solve", "write"} <= (row["stages"] or {"get": 0, "solve": 0, "write": 0}).keys()


def test_a_node_under_all_attacks_at_once_is_measured(monkeypatch):
    monkeypatch.setattr("benchmarks.driver.attacks.HOPELESS", HOPELESS[:2])
    monkeypatch.setattr("benchmarks.driver.attacks.BIG", 2)
    attack = Attack("all at once", 5, big=True, hopeless=True, slow=True)
    (row,) = measure(attack, 3.0, "socket:2 numa:2 l3:2 core:8 cpu:2")
    assert row.handlers > 10
    assert 0 < row.median_ms <= row.p99_ms <= row.worst_ms
    assert row.prepares > 0
    assert row.peak_mb > 50
    assert len(row.cells()) == len(ATTACK_HEADINGS)


def test_an_attack_befalls_the_driver_as_it_is_meant_to():
    with TemporaryDirectory() as folder:  # Its path is short enough for sockets.
        node = Node(Path(folder), synthetic.build("numa:2 core:16 cpu:2"), 0.0, neighbours=1)
        with node.running():
            ref = node.claim(hopeless(HOPELESS[0]))
            until(lambda: "NRIAway" not in node.kubelet.prepare(ref)[ref.uid].error)
            assert node.kubelet.prepare(ref)[ref.uid].error.startswith("NotPlaceable")
            refs = _big_claims(node)[:2]
            answers = [node.api.fault("GET", f"/claims/{ref.name}") for ref in refs]
            assert [round(len(body) / 2**20, 1) for _, body in answers] == list(SIZES)
            found = json.loads(answers[1][1])
            assert len(found.pop("padding")) > 2_000_000
            assert found == node.api.get("resourceclaims", "default", refs[1].name)
            assert node.api.fault("GET", f"/claims/{ref.name}") is None
            assert node.kubelet.prepare(refs[0])[refs[0].uid].error == ""
