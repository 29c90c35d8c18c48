"""The commands: tables, JSON that can be drawn, and the pictures."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main

SMALL = "socket:1 numa:2 l3:2 core:4 cpu:2"
COMMANDS = {
    "quality": ["--machine", SMALL, "--sets", "2"],
    "joint": ["--machine", SMALL, "--batches", "2"],
    "churn": ["--machine", SMALL, "--mix", "small", "--occupancy", "0.6", "--arrivals", "30", "--seeds", "2"],
}


def run(*words):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_tables_are_printed(command):
    assert "│" in run(command, *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_json_says_what_was_made_where_and_can_be_drawn(command, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra 'bench' is not installed")
    path = tmp_path / "results.json"
    path.write_text(run(command, *COMMANDS[command], "--output", "json"))
    results = json.loads(path.read_text())
    assert results["kind"] == command
    assert {"date", "commit", "machine", "python", "ortools"} <= set(results["made"])
    drawn = run("pictures", str(path), "--to", str(tmp_path)).splitlines()
    assert drawn
    assert all(Path(picture).read_bytes().startswith(b"\x89PNG") for picture in drawn)


def test_what_is_no_result_is_refused_in_one_line(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra 'bench' is not installed")
    path = tmp_path / "results.json"
    path.write_text("{}")
    result = CliRunner().invoke(main, ["pictures", str(path)])
    assert result.exit_code == 2
    assert "not what --output json" in result.output


def test_a_machine_that_is_not_known_is_refused_in_one_line():
    result = CliRunner().invoke(main, ["quality", "--machine", "no-such-machine"])
    assert result.exit_code == 2
    assert "no-such-machine" in result.output
