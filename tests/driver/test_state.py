"""``cpusat-driver state`` on ledgers on disk."""

import json
import os
import socket

import pytest
from click.testing import CliRunner

from driver.cli import main
from driver.ledger.entry import Entry, Owner
from driver.ledger.files import Files
from driver.node_name import FILE, remember_name
from topologies.load import load

MACHINE = "socket:2 numa:2 l3:1 core:4 cpu:2"
ENTRIES = (
    Entry(
        uid="0a1b-web",
        namespace="default",
        name="web",
        cpuset="2-5",
        mems="0-1",
        pods=["pod-2", "pod-1"],
        pod_names={"pod-1": "web-0", "pod-2": "web-1"},
        owner=Owner(pod_uid="pod-1", container="nginx"),
        engine="cpsat",
    ),
    Entry(uid="0a1b-old", cpuset="8-9", adopted=True),
    Entry(
        uid="0a1b-set",
        namespace="batch",
        name="job",
        cpuset="31",
        pods=["pod-4", "pod-3"],
        pod_names={"pod-4": "b"},
    ),
)


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "ledger"
    files = Files(folder)
    files.read()
    for entry in ENTRIES:
        files.write(entry)
    return folder


def state(*line):
    return CliRunner().invoke(main, ["state", "--topology", MACHINE, *map(str, line)], prog_name="cpusat-driver")


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_the_table_says_who_holds_what(ledger):
    result = state("--ledger", ledger)
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert ["0a1b-old", "-", "-", "8-9", "2", "adopted"] in rows
    assert ["batch/job", "batch/b,", "pod-3", "-", "31", "3", "given"] in rows
    assert ["default/web", "default/web-0", "nginx", "2-5", "0-1", "cpsat"] in rows


def test_the_drawing_marks_each_claims_cpus(ledger):
    output = state("--ledger", ledger).output
    assert "held by default/web  4 CPUs   2-5" in output
    assert "free                 25 CPUs  0-1,6-7,10-30" in output


def test_json_has_the_same_for_programs(ledger):
    result = state("--ledger", ledger, "--output", "json")
    found = json.loads(result.stdout)
    assert (found["free"], found["reserved"], found["unreadable"]) == ("0-1,6-7,10-30", "", [])
    web = next(claim for claim in found["claims"] if claim["uid"] == "0a1b-web")
    assert (web["cpuset"], web["mems"], web["numa_nodes"], web["engine"]) == ("2-5", "0-1", "0-1", "cpsat")
    assert (web["pods"], web["owner"]) == (["pod-1", "pod-2"], {"pod_uid": "pod-1", "container": "nginx"})
    assert web["pod_names"] == {"pod-1": "default/web-0", "pod-2": "default/web-1"}
    assert web["carried_by"] == "default/web-0"
    assert [claim["adopted"] for claim in found["claims"]] == [True, False, False]
    assert [claim["carried_by"] for claim in found["claims"]] == [None, None, "default/web-0"]
    assert [claim["pod_names"] for claim in found["claims"][:2]] == [{}, {"pod-4": "batch/b"}]


def told(folder, *line):
    found = json.loads(state("--ledger", folder, "--output", "json", *line).stdout)
    return found["node"], found["machine"]


def test_the_node_is_called_what_its_driver_calls_it_wherever_it_is_looked_at(ledger, tmp_path, monkeypatch):
    monkeypatch.delenv("NODE_NAME", raising=False)
    remember_name(tmp_path / FILE, "worker-3")
    monkeypatch.setenv("NODE_NAME", "laptop")
    assert told(ledger) == ("worker-3", load(MACHINE).name)
    output = state("--ledger", ledger).output
    assert output.startswith(f"node worker-3, drawn as {load(MACHINE).name}\n")
    here = CliRunner().invoke(main, ["state", "--ledger", str(ledger)]).output
    assert here.startswith("node worker-3\n")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"x" * 300])
def test_a_node_whose_driver_has_left_no_name_is_called_as_the_driver_would(
    ledger, tmp_path, monkeypatch, content
):
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    config = tmp_path / "config.yaml"
    config.write_text("hostnameOverride: over-there")
    monkeypatch.setenv("NODE_NAME", "worker-4")
    assert told(ledger)[0] == "worker-4"
    assert told(ledger, "--config", config)[0] == "over-there"
    monkeypatch.delenv("NODE_NAME")
    assert told(ledger)[0] == socket.gethostname().lower()


def test_nothing_is_written_to_the_ledger(ledger):
    (ledger / "torn.json").write_text('{"uid": "torn", "cpuset": "7')
    before = contents(ledger)
    assert state("--ledger", ledger).exit_code == 0
    assert contents(ledger) == before


def test_files_that_are_no_entries_are_named_with_the_reason(ledger):
    (ledger / "torn.json").write_text('{"uid": "torn", "cpuset": "7')
    (ledger / "other.json").write_text((ledger / "0a1b-web.json").read_text())
    (ledger / "quarantine" / "older.json").write_text("{}")
    os.mkfifo(ledger / "pipe.json")
    output = state("--ledger", ledger).output
    assert f"cannot be read: {ledger}/torn.json: is torn: Unterminated string" in output
    assert f"cannot be read: {ledger}/other.json: it is the file of another claim" in output
    assert f"cannot be read: {ledger}/quarantine/older.json: was put into quarantine; it names no CPUs" in output
    assert "default/web" in output


def test_cpus_that_an_unreadable_file_still_names_are_not_free(ledger):
    (ledger / "torn.json").write_text('{"uid": "torn", "cpuset": "10-12", "mems')
    (ledger / "quarantine" / "older.json").write_text('{"uid": "older", "cpuset": "20"}')
    result = state("--ledger", ledger)
    assert "held by torn.json    3 CPUs   10-12" in result.output
    assert "held by older.json   1 CPU    20" in result.output
    assert "its CPUs 10-12 stay held" in result.output
    found = json.loads(state("--ledger", ledger, "--output", "json").output)
    assert found["free"] == "0-1,6-7,13-19,21-30"
    assert [each["cpuset"] for each in found["unreadable"]] == ["10-12", "20"]


def test_the_host_is_read_under_the_overlay_of_the_configuration(tmp_path):
    (tmp_path / "overlay.yaml").write_text('/sys/devices/system/cpu/online: "0"')
    config = tmp_path / "config.yaml"
    config.write_text(f"sysfsOverlay: {tmp_path}/overlay.yaml")
    line = ["state", "--config", str(config), "--ledger", str(tmp_path), "--output", "json"]
    assert json.loads(CliRunner().invoke(main, line).output)["free"] == "0"


def test_a_ledger_without_claims_says_so(tmp_path):
    assert "no claim holds CPUs" in state("--ledger", tmp_path).output


def test_reserved_cpus_that_are_offline_do_not_keep_it_from_being_shown(ledger, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text('reservedCPUs: "0,99"')
    result = state("--ledger", ledger, "--config", config, "--output", "json")
    assert json.loads(result.output)["reserved"] == "0"


def test_the_configuration_says_where_the_ledger_is_and_what_is_reserved(tmp_path):
    folder = tmp_path / "plugins" / "dra.cpu" / "ledger"
    files = Files(folder)
    files.read()
    files.write(ENTRIES[0])
    config = tmp_path / "config.yaml"
    config.write_text(f'kubeletRootDir: {tmp_path}\nreservedCPUs: "0-1"')
    found = json.loads(state("--config", config, "--output", "json").stdout)
    assert (found["reserved"], found["free"]) == ("0-1", "6-31")
    assert [claim["name"] for claim in found["claims"]] == ["web"]


def test_cpus_that_the_machine_does_not_have_are_still_listed(ledger):
    Files(ledger).write(Entry(uid="far", cpuset="500-501"))
    output = state("--ledger", ledger).output
    assert "500-501" in output


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--ledger", "/absent"], "/absent: is no folder: has the driver ever run here?"),
        (["--config", "/absent.yaml"], "/absent.yaml: cannot be read"),
        (["--topology", "no such machine"], "no file or directory has this name"),
        (["--output", "xml"], "--output"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(line, says):
    result = state(*line)
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1
    assert says in result.output


def test_a_claim_that_ends_and_comes_back_while_it_is_read_is_nobodys_business(ledger, monkeypatch):
    def gone(file):
        raise FileNotFoundError(str(file))

    monkeypatch.setattr("driver.cli.state.read_entry", gone)
    result = state("--ledger", ledger, "--output", "json")
    assert (json.loads(result.output)["claims"], json.loads(result.output)["unreadable"]) == ([], [])
