import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks import speed_points, speed_tables
from benchmarks.__main__ import main
from benchmarks.instances import instances, prepared
from benchmarks.plain import PlainModel, solve_plain, weighted_sums
from benchmarks.speed import SpeedRow, TimeLimits, measure
from benchmarks.speed_command import speed
from benchmarks.speed_points import Point
from models import Request, from_mask
from solver.engine import solve
from solver.score import names

SMALL = "socket:2 numa:2 l3:2 core:2 cpu:2"
ROW = SpeedRow("cpus", 128, SMALL, "packed", "auto", 4, 4, 4, 1, 2, 3, 4, 5, 6, 7, 0.5, (1, 2, 3, 4))


@pytest.mark.parametrize("policy", ["packed", "distributed"])
def test_the_plain_model_proves_the_same_optimum(policy):
    for case in instances(SMALL, 8):
        request = Request(cpus=case.cpus, policy=policy)
        plain = solve_plain(prepared(SMALL), request, case.free, time_limit=60)
        ours = solve(prepared(SMALL), request, free=from_mask(case.free), time_limit=20)
        assert plain.proven
        assert plain.metrics == ours.metrics


def test_the_plain_model_without_time_says_so():
    plain = solve_plain(prepared(SMALL), Request(cpus=3), prepared(SMALL).machine.online, time_limit=0)
    assert (plain.proven, plain.metrics) == (False, {})


def test_metrics_that_do_not_fit_64_bits_are_weighed_in_several_sums():
    machine = prepared(speed_points.LARGE)
    model = PlainModel(machine, request := Request(cpus=100, policy="distributed"), machine.machine.online)
    metrics = [model.metric(name) for name in names(request)]
    assert len(weighted_sums(metrics)) == 2
    assert len(weighted_sums(metrics[:3])) == 1


def test_engines_are_measured_on_the_same_instances_and_agree():
    point = Point("cpus", 32, SMALL, ("greedy", "auto", "cpsat", "plain"))
    rows = measure(point, "distributed", 3, TimeLimits(20, 20))
    assert [(row.engine, row.solves, row.differing) for row in rows] == [(name, 3, ()) for name in point.engines]
    assert [row.proven for row in rows] == [0, 3, 3, 3]
    assert len({row.empty_ms for row in rows}) == 1


def test_every_axis_lies_on_machines_of_the_size_it_says():
    for points, level in ((speed_points.by_numa_nodes(), "numa_nodes"), (speed_points.by_l3s(), "l3s")):
        for point in points:
            machine = prepared(point.machine).machine
            assert (machine.online.bit_count(), len(getattr(machine, level))) == (512, point.at)
    for point in speed_points.by_cpus():
        machine = prepared(point.machine).machine
        assert (machine.online.bit_count(), len(machine.numa_nodes)) == (point.at, 8)


def test_growth_in_proportion_has_exponent_one():
    points = [replace(ROW, at=at, median_ms=0.3 * at) for at in (128, 256, 512, 1024)]
    assert speed_tables.exponent(points, lambda row: row.median_ms) == pytest.approx(1)


def test_a_missed_target_is_marked():
    machine = {"series": "catalog", "machine": "m"}
    rows = [
        replace(ROW, **machine, policy=policy, engine=engine, median_ms=15)
        for policy in ("packed", "distributed")
        for engine in ("greedy", "auto")
    ]
    (line,) = speed_tables.targets_sheet(rows).lines
    assert line == ("m", "0.50", "15.0", "30.0*", "12.0", "30.0", "12.0")


def test_proven_optima_that_differ_are_shown():
    shown = [sheet.title for sheet in speed_tables.sheets([replace(ROW, differing=("an instance",))], [])]
    assert any("DEFECT" in title for title in shown)
    assert not any("DEFECT" in sheet.title for sheet in speed_tables.sheets([ROW], []))


def test_what_was_kept_can_be_shown_again(tmp_path):
    asked = ["--quick", "--only", "cpus", "--sets", "1", "--output", "json"]
    kept = CliRunner().invoke(speed, asked, catch_exceptions=False)
    document = json.loads(kept.stdout)
    assert document["kind"] == "speed"
    (tmp_path / "speed.json").write_text(kept.stdout)
    again = ["--from", str(tmp_path / "speed.json"), "--output", "markdown"]
    shown = CliRunner().invoke(speed, again, catch_exceptions=False)
    assert "growth" not in shown.stdout
    assert shown.stdout.count("| packed") >= len(document["rows"]) // 2


def test_what_was_not_kept_by_speed_is_refused_in_one_line(tmp_path):
    (tmp_path / "other.json").write_text('{"kind": "quality"}')
    result = CliRunner().invoke(main, ["speed", "--from", str(tmp_path / "other.json")])
    assert result.exit_code == 2
    assert "not what --output json of speed prints" in result.output
