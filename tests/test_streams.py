"""Standard streams that are closed, full or broken: one line and an exit code, whichever program it is.

Where standard output takes nothing, the code is 2. Standard error changes no exit code, whatever it is.
"""

import os
import subprocess
import sys

import pytest

from tests.shell import ROOT, shell

CLOSED_OUTPUT = "error: standard output is closed; redirect it (to /dev/null to discard it)\n"
CLOSED_INPUT = "error: <stdin>: is closed; give a file, or pipe text into it\n"
FULL = "error: [Errno 28] No space left on device\n"

SOLVED = "--topology core:4 --cpus 2"
INFEASIBLE = "--topology core:4 --cpus 9"
LONG = "topology convert 2s8n-128c256t-epyc-7763-nps4"

WRITING = [
    f"{{cpusat}} solve {SOLVED}",
    f"{{cpusat}} solve {SOLVED} --output cpuset",
    f"{{cpusat}} solve {INFEASIBLE} --output json 2>/dev/null",
    f"{{solve}} {SOLVED}",
    "{cpusat} --version",
    "{cpusat} --help",
    "{cpusat} solve --help",
    "{cpusat} topology validate core:4",
    "{cpusat} topology show core:4",
    f"{{cpusat}} {LONG}",
    "{driver} --version",
    "{driver} --help",
    "{driver} run --help",
    "{driver} state --topology core:4 --ledger models",
    "{benchmarks} --help",
    "{benchmarks} quality --machine core:2 --sets 1 --output json 2>/dev/null",
]
"""Lines that write to standard output."""


@pytest.mark.parametrize("line", WRITING)
def test_a_full_standard_output_is_one_line(line: str) -> None:
    done = shell(f"{line} >/dev/full")
    assert (done.returncode, done.stderr) == (2, "" if "2>" in line else FULL)


@pytest.mark.parametrize("line", WRITING)
def test_a_closed_standard_output_is_one_line(line: str) -> None:
    done = shell(f"{line} >&-")
    assert (done.returncode, done.stderr) == (2, "" if "2>" in line else CLOSED_OUTPUT)


@pytest.mark.parametrize("line", WRITING)
def test_a_reader_that_went_away_is_no_error_to_speak_of(line: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = shell(line, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("line", ["{cpusat} solve --topology - --cpus 2", "{solve} --topology core:4 --claims -"])
def test_a_closed_standard_input_is_one_line(line: str) -> None:
    done = shell(f"{line} <&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", CLOSED_INPUT)


@pytest.mark.parametrize("to", ["&-", "/dev/full"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"{{solve}} {SOLVED} --explain --output cpuset", 0),
        (f"{{solve}} {INFEASIBLE} --explain --output cpuset", 1),
        ("{solve} --topology core:4 --cpus x", 2),
        ("{cpusat} solve --topology core:4 --free 99 --cpus 1", 2),
        ("{cpusat}", 2),
        ("{driver} state --topology core:4 --ledger models/nowhere", 2),
        ("{driver} run --config models/nowhere", 2),
        ("{benchmarks} quality --machine nowhere", 2),
    ],
)
def test_a_standard_error_that_takes_nothing_leaves_the_exit_code(line: str, code: int, to: str) -> None:
    done = shell(f"{line} 2>{to}")
    assert (done.returncode, done.stderr) == (code, "")
    assert bool(done.stdout) == (code == 0)


def test_a_defect_that_nobody_can_be_told_of_has_its_exit_code_still() -> None:
    script = """
import cpusat.cli
def broken(*_, **__): raise ZeroDivisionError
cpusat.cli.Program.get_command = broken
cpusat.cli.main(["solve"])
"""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - not a file of the test's
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=full, stderr=full, check=False)
    assert done.returncode == 3


def test_what_is_opened_later_is_never_taken_for_a_standard_stream() -> None:
    script = """
import os, subprocess, sys
from topologies.terminal.streams import prepare
prepare()
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
child = subprocess.run(["/bin/sh", "-c", "echo heard >&2"], stdout=2)
print(min(files) > 2, child.returncode)
"""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec {sys.executable} -c "$1" <&- 2>&-', "sh", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True 0\n", "")
