"""``cpusat-driver check``: a configuration judged before it is rolled out."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driver.cli import main

MACHINE = "socket:2 numa:2 l3:1 core:4 cpu:2"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def check(file: Path | str, *more: str, machine: str = MACHINE) -> Result:
    line = ["check", "--config", str(file), *(["--topology", machine] if machine else []), *more]
    return CliRunner().invoke(main, line, prog_name="cpusat-driver")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("groupBy: machine\nreservedCPUs: 0-1", "1 device with 30 CPUs of 2s4n-16c32t"),
        ("groupBy: socket\nfullCores: true\nreservedCPUs: 0,31", "2 devices with 28 CPUs of 2s4n-16c32t"),
        ("cpuDeviceMode: individual\nreservedCPUs: 0-3", "28 devices with 28 CPUs of 2s4n-16c32t"),
        ("# nothing\n", "4 devices with 31 CPUs of 2s4n-16c32t"),
    ],
)
def test_a_good_file_says_what_would_be_published(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    result = check(file)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"ok   {file}: {says}\n", "")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "groupBy: machin\nreservedCpus: 3\nbindAddress: x\n",
            [
                "groupBy: Input should be 'numanode', 'socket' or 'machine'",
                "bindAddress: 'x' is no address such as :8080, 127.0.0.1:8080 or [::]:8080",
                "reservedCpus: unknown key; is it reservedCPUs?",
            ],
        ),
        ("- a", ["is not a mapping of settings such as 'groupBy: socket'"]),
        ("a: 1\na: 2", ["line 1, column 1: a key is given twice in one mapping"]),
        ("minSharedCPUs: 0", ["minSharedCPUs: 0 leaves containers without a claim nothing"]),
        (
            "reservedCPUs: 0,40\nminSharedCPUs: 40\n",
            [
                "reservedCPUs: CPUs 40 are not online; this machine has 0-31",
                "minSharedCPUs: no CPUs are published, for 40 must stay shared; ask for fewer",
            ],
        ),
    ],
)
def test_everything_that_is_wrong_is_a_line_each(file: Path, text: str, lines: list[str]) -> None:
    file.write_text(text)
    result = check(file)
    found = [line.removeprefix(f"bad  {file}: ") for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (2, "")
    assert len(found) == len(lines)
    assert all(line.startswith(start) for line, start in zip(found, lines, strict=True)), found


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    result = check(file)
    assert (result.exit_code, result.stdout) == (2, f"bad  {file}: cannot be read: No such file or directory\n")


def test_a_machine_that_is_not_known_is_an_error_of_the_command(file: Path) -> None:
    file.write_text("groupBy: machine")
    result = check(file, machine="no-such-machine")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: 'no-such-machine'")


def test_programs_get_all_of_it(file: Path) -> None:
    file.write_text("groupBy: socket\nnumaIds: 9")
    result = check(file, "--output", "json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    (error,) = document.pop("errors")
    assert (error["place"], error["reason"].startswith("claims without options")) == ("numaIds", True)
    assert document == {
        "config": str(file),
        "machine": "2s4n-16c32t",
        "devices": ["cpudevsocket000", "cpudevsocket001"],
        "cpus": 31,
    }
    file.write_text("groupBy: sockets")
    broken = json.loads(check(file, "--output", "json").stdout)
    assert (broken["machine"], broken["devices"], [each["place"] for each in broken["errors"]]) == (
        None,
        [],
        ["groupBy"],
    )


def test_without_another_machine_it_is_this_one_under_the_overlay(file: Path) -> None:
    overlay = file.with_name("overlay.yaml")
    overlay.write_text('/sys/devices/system/cpu/online: "0"')
    file.write_text(f"sysfsOverlay: {overlay}\nreservedCPUs: '0,{os.cpu_count()}'")
    result = check(file, machine="")
    assert result.exit_code == 2
    assert f"reservedCPUs: CPUs {os.cpu_count()} are not online; this machine has 0\n" in result.stdout
    assert "reservedCPUs: 0 are all CPUs there are; leave some to give\n" in result.stdout


def test_a_file_may_come_through_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"groupBy: machine")
    os.close(writing)
    result = check(f"/dev/fd/{reading}")
    os.close(reading)
    assert (result.exit_code, result.stdout) == (
        0,
        f"ok   /dev/fd/{reading}: 1 device with 31 CPUs of 2s4n-16c32t\n",
    )


def test_which_file_must_be_said() -> None:
    result = CliRunner().invoke(main, ["check"], prog_name="cpusat-driver")
    assert result.exit_code == 2
    assert "Missing option '--config'" in result.stderr
