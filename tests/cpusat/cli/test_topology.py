import errno
import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import cpusat.cli
from models import BadInputError, DefectError, InfeasibleError, Topology
from models.allocation import Infeasible, Rule
from topologies import catalog, synthetic
from topologies.terminal.drawing import Drawing, short

ROOT = Path(__file__).resolve().parents[3]


def run(*args: str, columns: int = 80, stdin: str = "", **env: str) -> Result:
    settings = {"COLUMNS": str(columns), "NO_COLOR": None, "FORCE_COLOR": None, **env}
    return CliRunner(env=settings).invoke(cpusat.cli.main, args, prog_name="cpusat", input=stdin)


def process(
    *args: str, cwd: Path = ROOT, path: Path = ROOT, **options: object
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=60, **options
    )


def show(*args: str, columns: int = 80, **env: str) -> str:
    result = run("topology", "show", *args, columns=columns, **env)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def drawing(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_a_machine_is_drawn_socket_by_socket_with_what_is_reserved_and_held() -> None:
    drawn = show("socket:2 numa:2 l3:1 core:2 cpu:2", "--reserved", "0,8", "--held", "web=1,9", "--held", "db=4-6")
    assert drawn == drawing(
        """
        2s4n-8c16t
        2 sockets, 4 NUMA nodes, 4 L3s, 8 cores, 16 CPUs (2 a core)

        socket 0  0-3,8-11  4 cores, 8 CPUs, 4 free
          NUMA node 0  0-1,8-9  2 cores, 4 CPUs, 0 free
            L3 0  0-1,8-9    ## aa
          NUMA node 1  2-3,10-11  2 cores, 4 CPUs, 4 free
            L3 1  2-3,10-11  .. ..

        socket 1  4-7,12-15  4 cores, 8 CPUs, 5 free
          NUMA node 2  4-5,12-13  2 cores, 4 CPUs, 2 free
            L3 2  4-5,12-13  b. b.
          NUMA node 3  6-7,14-15  2 cores, 4 CPUs, 3 free
            L3 3  6-7,14-15  b. ..

        .  free         9 CPUs  2-3,7,10-15
        #  reserved     2 CPUs  0,8
        a  held by web  2 CPUs  1,9
        b  held by db   3 CPUs  4-6

        NUMA distances
               0   1   2   3
           0  10  12  21  21
           1  12  10  21  21
           2  21  21  10  12
           3  21  21  12  10
        """
    )


def test_kinds_of_cores_are_marked_on_a_hybrid_machine() -> None:
    assert show("1s1n-16c22t-core-ultra-7-155h") == drawing(
        """
        1s1n-16c22t-core-ultra-7-155h
        1 socket, 1 NUMA node, 1 L3, 16 cores, 22 CPUs (1 or 2 a core)

        socket 0, NUMA node 0  0-21  16 cores, 22 CPUs, 22 free
            L3 0 performance  0-11   .. .. .. .. .. ..
            L3 0 efficiency   12-19  .  .  .  .  .  .  .  .
            no L3 efficiency  20-21  .  .

        .  free  22 CPUs  0-21
        """
    )


def test_a_virtual_machine_has_neither_numa_nodes_nor_an_l3_in_its_drawing() -> None:
    assert show("1s1n-4c4t-vm") == drawing(
        """
        1s1n-4c4t-vm
        1 socket, no NUMA, no L3, 4 cores, 4 CPUs (1 a core)

        socket 0  0-3  4 cores, 4 CPUs, 4 free
            no L3  0-3  . . . .

        .  free  4 CPUs  0-3
        """
    )


def test_an_l3_over_numa_nodes_is_starred_and_explained() -> None:
    assert show("socket:1 l3:1 numa:2 core:1 cpu:2") == drawing(
        """
        1s2n-2c4t
        1 socket, 2 NUMA nodes, 1 L3, 2 cores, 4 CPUs (2 a core)

        socket 0  0-3  2 cores, 4 CPUs, 4 free
          NUMA node 0  0,2  1 core, 2 CPUs, 2 free
            L3 0*  0,2  ..
          NUMA node 1  1,3  1 core, 2 CPUs, 2 free
            L3 0*  1,3  ..

        .  free  4 CPUs  0-3
        * L3 0 lies over NUMA nodes 0-1; each of them shows its part

        NUMA distances
               0   1
           0  10  12
           1  12  10
        """
    )


def test_a_numa_node_over_sockets_is_starred_and_explained() -> None:
    assert show("numa:1 socket:2 core:2") == drawing(
        """
        2s1n-4c4t
        2 sockets, 1 NUMA node, no L3, 4 cores, 4 CPUs (1 a core)

        socket 0, NUMA node 0*  0-1  2 cores, 2 CPUs, 2 free
            no L3  0-1  . .

        socket 1, NUMA node 0*  2-3  2 cores, 2 CPUs, 2 free
            no L3  2-3  . .

        .  free  4 CPUs  0-3
        * NUMA node 0 lies over sockets 0-1; each of them shows its part
        """
    )


def test_cpus_outside_all_numa_nodes_stand_apart() -> None:
    cpus = ({"cpu": 0, "core": 0, "numa": 4}, {"cpu": 1, "core": 1}, {"cpu": 2, "core": 2, "numa": 4})
    document = json.dumps({"cpus": cpus, "numa_nodes": [{"id": 4}]})
    assert run("topology", "show", "-", "--reserved", "1", stdin=document).stdout.partition("\n\n")[2] == drawing(
        """
        socket 0  0-2  3 cores, 3 CPUs, 2 free
          NUMA node 4  0,2  2 cores, 2 CPUs, 2 free
            no L3  0,2  . .
          no NUMA node  1  1 core, 1 CPU, 0 free
            no L3  1    #

        .  free      2 CPUs  0,2
        #  reserved  1 CPU   1
        """
    )


def test_numa_nodes_without_cpus_devices_and_a_matrix_too_wide_are_shown() -> None:
    drawn = show("2s2n-144c144t-grace-gb200")
    assert drawn.endswith(
        drawing(
            """
            NUMA nodes without CPUs: 2-33

            NUMA distances
               0: 10 to 0; 40 to 1; 80 to 2-17; 120 to 18-33
               1: 10 to 1; 40 to 0; 80 to 18-33; 120 to 2-17

            device  PCI address   PCI root  NUMA node  local CPUs
            gpu0    0008:01:00.0  -         0          0-71
            gpu1    0009:01:00.0  -         0          0-71
            gpu2    0018:01:00.0  -         1          72-143
            gpu3    0019:01:00.0  -         1          72-143
            """
        )
    )


@pytest.mark.parametrize("columns", [40, 100, 200])
@pytest.mark.parametrize("name", catalog.names())
def test_each_cpu_of_a_machine_is_drawn_once_within_the_width(name: str, columns: int) -> None:
    topology = catalog.read(name)
    owners = {cpu.cpu: "x" for cpu in topology.cpus}
    console = Console(width=columns, file=open(os.devnull, "w"), color_system=None)  # noqa: PTH123, SIM115
    with console.capture() as capture:
        console.print(Drawing(topology, owners))
    lines = capture.get().splitlines()
    assert all(len(line) <= columns for line in lines)
    words = [word for line in lines if line.startswith("    ") for word in line.split()]
    assert sum(len(word) for word in words if set(word) == {"a"}) == len(owners)


def test_512_cpus_take_two_screens_and_less_on_a_wide_terminal() -> None:
    tall, wide = (show("2s8n-256c512t-epyc-9754-nps4", columns=width).count("\n") for width in (80, 160))
    assert tall < 70
    assert wide < 45


def test_colour_is_only_an_addition_and_no_color_turns_it_off() -> None:
    args = ("1s1n-4c8t-vm", "--reserved", "0")
    plain, coloured, without = (
        show(*args),
        show(*args, FORCE_COLOR="1"),
        show(*args, FORCE_COLOR="1", NO_COLOR="1"),
    )
    assert "\x1b" not in plain
    assert "\x1b[31m" in coloured
    assert "\x1b[31m" not in without
    assert click.unstyle(coloured) == plain == click.unstyle(without)


def test_names_from_a_document_cannot_control_the_terminal() -> None:
    topology = synthetic.build("core:2").model_copy(
        update={"name": "x\x1b[2Jy", "held": {"a\x1b]0;": frozenset({1})}}
    )
    result = run("topology", "show", "-", stdin=topology.to_json())
    assert "\x1b" not in result.stdout
    assert "x?[2Jy" in result.stdout
    assert "held by a?]0;" in result.stdout


def test_a_hundred_owners_are_all_in_the_legend() -> None:
    owners = {cpu: f"held by claim-{cpu}" for cpu in range(100)}
    console = Console(width=80, file=open(os.devnull, "w"), color_system=None)  # noqa: PTH123, SIM115
    with console.capture() as capture:
        console.print(Drawing(synthetic.build("core:128"), owners))
    assert all(f"held by claim-{cpu} " in capture.get() for cpu in owners)


def test_long_cpu_lists_are_cut_in_the_middle() -> None:
    assert short(range(0, 80, 2), 24) == "0,2,4,6,8,10,12,14,..,78"
    assert short(range(80), 24) == "0-79"


def test_overlays_replace_what_is_reserved_and_add_to_what_is_held() -> None:
    document = synthetic.build("core:8").model_copy(
        update={"reserved": frozenset({0}), "held": {"old": frozenset({2})}}
    )
    args = ("topology", "show", "-", "--reserved", "1", "--held", "4", "--held", "5", "--held", "old=6")
    result = run(*args, stdin=document.to_json())
    assert "    no L3  0-7  . # a . b b a ." in result.stdout
    assert "a  held by old  2 CPUs  2,6" in result.stdout
    assert "b  held         2 CPUs  4-5" in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--reserved", "9"], "CPUs 9 are reserved but not online"),
        (["--reserved", "x"], "--reserved: 'x' is not a CPU number or a range such as 0-3"),
        (["--held", "a=0-1", "--held", "b=1"], "CPU 1 is held by 'b' and is held by 'a' too"),
        (["--held", "a b=1"], "held"),
        (["--held", "a=3-1"], "--held: range '3-1' runs backwards"),
    ],
)
def test_an_overlay_that_cannot_be_is_one_clear_line(args: list[str], message: str) -> None:
    result = run("topology", "show", "core:4", *args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_the_list_names_every_machine_with_its_numbers() -> None:
    lines = run("topology", "list").stdout.splitlines()
    assert lines[1].split() == ["name", "sockets", "nodes", "L3s", "cores", "CPUs", "SMT"]
    assert [line.split()[0] for line in lines[2:]] == catalog.names()
    assert "2s8n-128c256t-epyc-7763-nps4 2 8 16 128 256 2" in (" ".join(line.split()) for line in lines)
    assert "1s1n-20c28t-core-i7-14700 1 1 1 20 28 1-2" in (" ".join(line.split()) for line in lines)


def test_the_list_can_be_read_by_programs() -> None:
    rows = {row["name"]: row for row in json.loads(run("topology", "list", "--output", "json").stdout)}
    assert list(rows) == catalog.names()
    assert rows["2s2n-44c176t-power9-ac922"] == {
        "name": "2s2n-44c176t-power9-ac922",
        "sockets": 2,
        "numa_nodes": 2,
        "l3s": 22,
        "cores": 44,
        "cpus": 176,
        "smt": [4],
    }


def test_convert_writes_the_native_document() -> None:
    result = run("topology", "convert", "socket:1 numa:1 core:2")
    assert result.stdout == synthetic.build("socket:1 numa:1 core:2").to_json()
    assert run("topology", "convert", "-", stdin=result.stdout).stdout == result.stdout


def test_convert_writes_what_is_reserved_and_held() -> None:
    result = run("topology", "convert", "core:4", "--reserved", "0", "--held", "web=1", "--held", "2-3")
    machine = Topology.model_validate_json(result.stdout)
    assert (machine.reserved, machine.held) == ({0}, {"web": {1}, "held": {2, 3}})


def test_convert_to_a_file_overwrites_only_when_told(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    assert run("topology", "convert", "core:2", "--output", str(file)).exit_code == 0
    assert Topology.model_validate_json(file.read_text()) == synthetic.build("core:2")
    refused = run("topology", "convert", "core:4", "--output", str(file))
    assert refused.exit_code == 2
    assert refused.stderr == f"error: {file}: --output: exists; --force overwrites it\n"
    assert Topology.model_validate_json(file.read_text()) == synthetic.build("core:2")
    assert run("topology", "convert", "core:4", "--output", str(file), "--force").exit_code == 0
    assert Topology.model_validate_json(file.read_text()) == synthetic.build("core:4")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_convert_to_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    folder = run("topology", "convert", "core:2", "--output", str(tmp_path), "--force")
    assert (folder.exit_code, "is not a file that could be overwritten" in folder.stderr) == (2, True)
    nowhere = run("topology", "convert", "core:2", "--output", str(tmp_path / "no" / "t.json"))
    assert nowhere.exit_code == 2
    assert os.strerror(errno.ENOENT) in nowhere.stderr


def test_validate_gives_a_line_for_each_source_and_fails_if_one_is_bad(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(synthetic.build("socket:2 core:2 cpu:2").to_json())
    bad.write_text('{"cpus": [{"cpu": 0, "core": 0}], "colour": "red"}')
    assert run("topology", "validate", str(good), "1s1n-4c4t-vm").stdout == drawing(
        f"""
        ok   {good}: 2s1n-4c8t
        ok   1s1n-4c4t-vm: 1s1n-4c4t
        """
    )
    result = run("topology", "validate", str(bad), str(good), "core:0")
    lines = result.stdout.splitlines()
    assert result.exit_code == 2
    assert [line[:5] for line in lines] == ["bad  ", "ok   ", "bad  "]
    assert "colour" in lines[0]
    assert "core:0" in lines[2]


@pytest.mark.parametrize("name", ["claims.yaml", "strict.json"])
def test_validate_says_where_a_claims_file_belongs(name: str) -> None:
    result = run("topology", "validate", str(ROOT / "examples" / name))
    assert (result.exit_code, result.stdout.count("\n")) == (2, 1)
    assert result.stdout.endswith("; it is a claims file: 'solve --topology SOURCE --claims FILE' reads it\n")


def test_validate_without_a_source_is_a_usage_error() -> None:
    assert run("topology", "validate").exit_code == 2


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    result = run("topology", "show", "2s8n-128c256t-epyc-7763-nps3")
    assert result.exit_code == 2
    assert "2s8n-128c256t-epyc-7763-nps4" in result.stderr
    assert result.stderr.count("\n") == 1


CLASH = Infeasible(rules=(Rule(name="cpus", request="cpus", text="10 CPUs requested, 8 free"),))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadInputError("is\nempty", place="line 1", file="t.json"), 2, "error: t.json: line 1: is empty\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied\n"),
        (InfeasibleError(CLASH), 1, "error: 10 CPUs requested, 8 free\n"),
        (
            DefectError("A is not in F"),
            3,
            "error: this is a bug in cpusat, please report it: DefectError: A is not in F\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(4), 4, ""),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_at_most_one_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    fake_solve(monkeypatch, error)
    result = run("solve", "--cpus", "4")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", message)


def test_an_error_nobody_foresaw_shows_where_it_came_from_and_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_solve(monkeypatch, KeyError("l3"))
    result = run("solve", "--cpus", "4")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: this is a bug in cpusat, please report it: KeyError: 'l3'\n")


def fake_solve(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
    """Put a command in the place of ``cpusat.cli.solve``, which prints its option or raises the error."""

    @click.command()
    @click.option("--cpus", type=int, required=True)
    def command(cpus: int) -> None:
        """Solve."""
        if error is not None:
            raise error
        click.echo(f"{cpus} CPUs")

    module = types.ModuleType("cpusat.cli.solve")
    module.command = command
    monkeypatch.setitem(sys.modules, "cpusat.cli.solve", module)


def test_solve_under_its_own_name_is_the_subcommand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_solve(monkeypatch)
    assert run("solve", "--cpus", "4").stdout == "4 CPUs\n"
    with pytest.raises(SystemExit) as ended:
        cpusat.cli.solve_command(["--cpus", "4"])
    assert (ended.value.code, capsys.readouterr().out) == (0, "4 CPUs\n")
    with pytest.raises(SystemExit) as ended:
        cpusat.cli.solve_command(["--cpus", "four"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: Invalid value for '--cpus': 'four' is not a valid integer. See 'solve --help'.\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("nonsense", "No such command 'nonsense'. See 'cpusat --help'."),
        ("--nonsense", "No such option '--nonsense'. See 'cpusat --help'."),
        ("topology nonsense", "No such command 'nonsense'. See 'cpusat topology --help'."),
        ("topology show", "Missing argument 'SOURCE'. See 'cpusat topology show --help'."),
        ("topology list --output xml", "'xml' is not one of 'table', 'json'. See 'cpusat topology list --help'."),
    ],
)
def test_usage_errors_are_one_line_and_exit_with_2(args: str, message: str) -> None:
    result = run(*args.split())
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(f"{message}\n")


@pytest.mark.parametrize("args", [[], ["topology"]])
def test_a_group_without_a_command_shows_its_help(args: list[str]) -> None:
    assert "Commands:" in run(*args).output


def test_both_names_of_the_command_tell_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    version = run("--version").stdout
    assert run("solve", "--version").stdout == version
    with pytest.raises(SystemExit):
        cpusat.cli.solve_command(["--version"])
    assert capsys.readouterr().out == version


def test_help_names_the_subcommands_and_imports_nothing_heavy() -> None:
    script = """
        import sys
        from cpusat.cli import main
        try:
            main(["--help"], prog_name="cpusat")
        finally:
            heavy = {"rich", "networkx", "ortools", "numpy", "yaml", "pydantic", "cpusat.cli.topology"}
            print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
    """
    done = process("-c", textwrap.dedent(script))
    assert done.stderr == "[]\n"
    assert "topology  List, draw, convert and check machines." in done.stdout
    assert "solve     Choose the CPUs" in done.stdout


def test_reading_and_drawing_import_neither_networkx_nor_ortools() -> None:
    script = """
        import sys
        from cpusat.cli import main
        try:
            main(["topology", "show", "1s1n-4c8t-vm"], prog_name="cpusat")
        finally:
            print(sorted({"networkx", "ortools"} & sys.modules.keys()), file=sys.stderr)
    """
    done = process("-c", textwrap.dedent(script))
    assert done.stderr == "[]\n"
    assert "socket 0, NUMA node 0  0-7  4 cores, 8 CPUs, 8 free" in done.stdout


def test_the_graph_is_shown_for_graphviz() -> None:
    lines = run("topology", "show", "1s1n-4c8t-vm", "--output", "dot").stdout.splitlines()
    assert (lines[0], lines[-1]) == ('digraph "1s1n-4c8t-vm" {', "}")
    assert '  "core 0" [label="core 0\\nCPUs 0-1"]' in lines
    assert sum("->" in line and line.endswith('"core 3"') for line in lines) == 1


def test_the_module_is_the_command() -> None:
    done = process("-m", "cpusat", "topology", "show", "1s1n-4c8t-vm", "--held", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == show("1s1n-4c8t-vm", "--held", "0")
    assert process("-m", "cpusat", "--version").stdout.startswith("cpusat")


def test_a_bad_source_is_one_line_and_exit_code_2_of_the_process() -> None:
    done = process("-m", "cpusat", "topology", "show", "socket:2 foo:3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "foo:3" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_document_is_read_from_standard_input() -> None:
    done = process("-m", "cpusat", "topology", "convert", "-", input=synthetic.build("core:2").to_json())
    assert (done.returncode, done.stdout) == (0, synthetic.build("core:2").to_json())


def test_a_closed_pipe_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "cpusat", "topology", "list"],
            cwd=ROOT, env=env, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("name", ["models", "topologies", "solver"])
def test_a_package_of_the_callers_own_that_shadows_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    done = process("-m", "cpusat", "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: the package '{name}' is {tmp_path / name}.py, but ours is in {ROOT}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("columns", [0, 1, 19])
@pytest.mark.parametrize(
    "line",
    [
        "topology list",
        "topology show socket:2|core:4|cpu:2 --held a=1",
        "solve --topology core:4 --cpus 2 --explain",
        "solve --topology core:4 --cpus 2 --compare",
    ],
)
def test_a_width_in_which_nothing_can_be_read_is_taken_for_80(columns: int, line: str) -> None:
    args = [word.replace("|", " ") for word in line.split()]
    narrow, usual = run(*args, columns=columns), run(*args, columns=80)
    untimed = [re.sub(r"[\d.]+ ms", "T ms", result.stdout) for result in (narrow, usual)]
    assert untimed[0] == untimed[1] != ""
    assert narrow.exit_code == usual.exit_code == 0
