import io
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from click.testing import CliRunner
from click.testing import Result as Invocation
from rich.console import Console

import cpusat.cli
from cpusat.cli import report
from cpusat.cli.answer import Printout
from cpusat.cli.claims import constraint, read_claim, wanted
from cpusat.cli.compare import Comparison
from cpusat.cli.options import REQUEST
from cpusat.cli.report import MEANING
from models import Allocation, Constraint, Infeasible, Level, Nearest, Preference, Request, Result, Rule
from solver.score import METRICS
from topologies import synthetic
from topologies.load import load

ROOT = Path(__file__).resolve().parents[3]
TWO_SOCKETS = "socket:2 numa:1 l3:1 core:4 cpu:2"


def solve(*args: str, stdin: str | None = None, topology: str = TWO_SOCKETS) -> Invocation:
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1", "FORCE_COLOR": None})
    return runner.invoke(
        cpusat.cli.main, ["solve", "--topology", topology, *args], prog_name="cpusat", input=stdin
    )


def placed(*args: str, **options: Any) -> str:
    result = solve(*args, **options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def process(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, **options
    )


def text(block: str) -> str:
    return textwrap.dedent(block).lstrip("\n")


def without_time(table: str) -> str:
    """The table without how long it took, and which of two exact methods was first to prove it."""
    return re.sub(r"\d+\.\d ms", "T ms", re.sub(r"proven by (dynamic programming|CP-SAT)", "proven", table))


def claims(tmp_path: Path, content: str, name: str = "claims.yaml") -> str:
    path = tmp_path / name
    path.write_text(textwrap.dedent(content))
    return str(path)


TWO = """
    requests:
      - {name: left, cpus: 3}
      - {name: right, cpus: 2, policy: distributed, numa_min: 2}
"""

# The main paths, in a process of their own.


def test_the_command_of_the_readme_works_from_the_root_of_the_project() -> None:
    done = process("-m", "cpusat", "solve", "--topology", "t.json", "--policy", "distributed")
    assert (done.returncode, done.stderr) == (0, "")
    assert without_time(done.stdout) == text(
        """
        optimal, proven, T ms

        request  policy       CPUs  mems  cpuset
        cpus     distributed    24  2-3   16-21,24-29,48-53,56-61

        metric         value
        unevenness         0
        numa_nodes         2
        sockets            1
        numa_distance     24
        core_types         1
        cores             12
        l3_caches          4
        numa_balance     352
        l3_leftover        8
        split_cores        0
        """
    )


def test_the_installed_command_solve_is_the_subcommand() -> None:
    args = ["--topology", TWO_SOCKETS, "--cpus", "4", "--engine", "greedy", "--output", "cpuset"]
    done = process("-c", f"from cpusat.cli import solve_command; solve_command({args!r})")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0-1,8-9\n", "")


@pytest.mark.parametrize(
    ("args", "code", "stderr"),
    [
        (("--cpus", "16"), 0, ""),
        (("--cpus", "17"), 1, "infeasible: 17 CPUs requested, 16 CPUs free"),
        (("--cpus", "many"), 2, "error: Invalid value for '--cpus'"),
        (("--cpus", "4", "--free", "3-1"), 2, "error: --free: range '3-1' runs backwards\n"),
    ],
)
def test_exit_codes_tell_what_happened(args: tuple[str, ...], code: int, stderr: str) -> None:
    done = process("-m", "cpusat", "solve", "--topology", TWO_SOCKETS, "--output", "cpuset", *args)
    assert (done.returncode, done.stdout) == (code, "" if code else "0-15\n")
    assert done.stderr.startswith(stderr)
    assert done.stderr.count("\n") == (1 if code else 0)


@pytest.mark.parametrize(
    "args",
    [
        ["solve", "--help"],
        ["solve", "--topology", "t.json", "--engine", "greedy", "--output", "cpuset"],
        ["solve", "--topology", "t.json", "--engine", "greedy", "--output", "json"],
        ["solve", "--topology", "t.json", "--free", "3-1"],
    ],
)
def test_help_greedy_answers_and_bad_input_never_import_ortools_nor_rich(args: list[str]) -> None:
    script = f"""
        import sys
        from cpusat.cli import main
        try:
            main({args!r}, prog_name="cpusat")
        finally:
            print("heavy:", sorted({{"ortools", "rich"}} & sys.modules.keys()), file=sys.stderr)
    """
    done = process("-c", textwrap.dedent(script))
    assert done.stderr.endswith("heavy: []\n")


def test_help_imports_no_models_and_shows_the_options_in_sections() -> None:
    script = """
        import sys
        from cpusat.cli import main
        try:
            main(["solve", "--help"], prog_name="cpusat")
        finally:
            print(sorted({"models", "pydantic", "networkx", "yaml"} & sys.modules.keys()), file=sys.stderr)
    """
    done = process("-c", textwrap.dedent(script))
    assert done.stderr == "[]\n"
    headings = [line for line in done.stdout.splitlines() if re.match(r"\w.*:$", line)]
    assert [heading.split(" (")[0].rstrip(":") for heading in headings] == [
        "Machine", "Request", "Several requests", "Engine", "Output", "Help",
    ]  # fmt: skip


def test_standard_input_holds_the_machine_or_the_claims() -> None:
    machine = synthetic.build("core:2").to_json()
    options = ("--engine", "greedy", "--output", "cpuset")
    assert placed("--cpus", "1", *options, topology="-", stdin=machine) == "0\n"
    assert placed("--claims", "-", *options, topology="core:2", stdin="- cpus: 2\n") == "0-1\n"
    done = process("-m", "cpusat", "solve", "--topology", "-", "--cpus", "1", *options, input=machine)
    assert (done.returncode, done.stdout) == (0, "0\n")


# The forms of output.


def test_a_table_shows_the_answer_and_its_metrics() -> None:
    assert without_time(placed("--cpus", "4")) == text(
        """
        optimal, proven, T ms

        request  policy  CPUs  mems  cpuset
        cpus     packed     4  0     0-1,8-9

        metric         value
        numa_nodes         1
        sockets            1
        numa_distance      0
        core_types         1
        cores              2
        l3_caches          1
        numa_leftover      4
        l3_leftover        4
        split_cores        0
        """
    )


def test_a_table_of_several_requests_has_each_ones_own_metric_in_each_slot(tmp_path: Path) -> None:
    found = placed("--claims", claims(tmp_path, TWO), "--engine", "greedy")
    assert without_time(found) == text(
        """
        feasible, not proven optimal, given by greedy, T ms

        request  policy       CPUs  mems  cpuset
        left     packed          3  0     0-1,8
        right    distributed     2  0-1   4,9

        metric           left  right  all
        unevenness          -      0    0
        floor_shortfall     -      0    0
        numa_nodes          1      2    3
        sockets             1      2    3
        numa_distance       0     42   42
        core_types          1      1    2
        cores               2      2    4
        l3_caches           1      2    3
        numa_leftover       5      -   11
        numa_balance        -     98   65
        l3_leftover         5     14   11
        split_cores         1      2    1
        """
    )


def test_json_is_the_documented_object() -> None:
    document = json.loads(placed("--cpus", "4", "--policy", "distributed", "--numa-min", "2", "--output", "json"))
    assert list(document) == ["status", "engine", "allocations", "metrics", "build_ms", "solve_ms"]
    metrics = {
        "unevenness": 0, "floor_shortfall": 0, "numa_nodes": 2, "sockets": 2, "numa_distance": 42, "core_types": 1,
        "cores": 2, "l3_caches": 2, "numa_balance": 72, "l3_leftover": 12, "split_cores": 0,
    }  # fmt: skip
    assert (document["status"], document["engine"], document["metrics"]) == ("optimal", "dp", metrics)
    assert document["allocations"] == [
        {
            "request": "cpus",
            "cpuset": "0,4,8,12",
            "mems": "0-1",
            "policy": "distributed",
            "metrics": metrics,
            "greedy": metrics,
        }
    ]
    assert list(document["metrics"]) == list(metrics)
    assert document["solve_ms"] > 0


def test_json_leaves_out_what_greedy_was_not_asked_and_keeps_bounds_that_were_not_reached() -> None:
    exact = json.loads(placed("--cpus", "4", "--engine", "cpsat", "--output", "json"))
    assert "greedy" not in exact["allocations"][0]
    greedy = json.loads(placed("--cpus", "4", "--engine", "greedy", "--output", "json"))
    assert "proof" not in greedy
    assert set(greedy["bounds"].values()) == {None}
    assert greedy["bounds"].keys() == greedy["metrics"].keys()


def test_json_of_an_infeasible_request_names_rules_numbers_and_the_nearest() -> None:
    result = solve("--cpus", "17", "--output", "json")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    document = json.loads(result.stdout)
    assert (document["status"], document["allocations"]) == ("infeasible", [])
    assert document["infeasible"] == {
        "rules": [
            {
                "name": "cpus",
                "request": "cpus",
                "text": "17 CPUs requested, 16 CPUs free",
                "asked": 17,
                "available": 16,
            }
        ],
        "nearest": {"request": "cpus", "option": "cpus", "asked": "17", "instead": "16"},
    }


@pytest.mark.parametrize(
    ("form", "one", "several"),
    [
        ("cpuset", "0-1,8-9\n", "left: 0-1,8\nright: 4,9\n"),
        ("mask", "0x303\n", "left: 0x103\nright: 0x210\n"),
        (
            "cgroup",
            "cpuset.cpus=0-1,8-9\ncpuset.mems=0\n",
            "left/cpuset.cpus=0-1,8\nleft/cpuset.mems=0\nright/cpuset.cpus=4,9\nright/cpuset.mems=0-1\n",
        ),
    ],
)
def test_plain_forms_are_bare_for_one_request_and_named_for_several(
    tmp_path: Path, form: str, one: str, several: str
) -> None:
    assert placed("--cpus", "4", "--engine", "greedy", "--output", form) == one
    assert placed("--claims", claims(tmp_path, TWO), "--engine", "greedy", "--output", form) == several


def test_a_claim_config_is_what_the_cpu_driver_reads(tmp_path: Path) -> None:
    printed = placed("--claims", claims(tmp_path, TWO), "--engine", "greedy", "--output", "claim-config")
    found = yaml.safe_load(printed)["config"]
    assert [(each["requests"], each["opaque"]["parameters"]["cpuConfig"]["cpuset"]) for each in found] == [
        (["left"], "0-1,8"),
        (["right"], "4,9"),
    ]
    opaque = {"driver": "dra.cpu", "parameters": {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "0"}}}
    single = placed("--cpus", "1", "--engine", "greedy", "--output", "claim-config", topology="core:2")
    assert yaml.safe_load(single) == {"config": [{"requests": ["cpus"], "opaque": opaque}]}
    refused = solve("--cpus", "900", "--output", "claim-config")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_mems_are_left_out_of_a_cgroup_without_numa() -> None:
    found = placed("--cpus", "1", "--engine", "greedy", "--output", "cgroup", topology="core:2")
    assert found == "cpuset.cpus=0\n"


def test_notes_go_to_standard_error() -> None:
    result = solve("--cpus", "4", "--output", "cpuset", "--time-limit", "0")
    assert (result.exit_code, result.stdout) == (0, "0-1,8-9\n")
    assert result.stderr.startswith("note: a time limit of 0 s left no time for an exact method")


def test_names_cannot_act_on_the_terminal() -> None:
    escape = "\x1b[31m"
    found = placed("--cpus", "1", "--engine", "greedy", "--name", f"a{escape}")
    assert "\x1b" not in found
    assert "a?[31m" in found


# Comparison and explanation.


def test_compare_marks_where_greedy_differs_and_says_what_is_proven() -> None:
    result = solve("--policy", "distributed", "--compare", topology=str(ROOT / "t.json"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.partition("\n\n")[2] == text(
        """
        request  policy       CPUs  mems  cpuset
        cpus     distributed    24  2-3   16-21,24-29,48-53,56-61

        metric         greedy  optimal  difference    proof
        unevenness          0        0                optimal
        numa_nodes          2        2                optimal
        sockets             2        1  <- 1 better   optimal
        numa_distance      42       24  <- 18 better  optimal
        core_types          1        1                optimal
        cores              12       12                optimal
        l3_caches           4        4                optimal
        numa_balance      352      352                optimal
        l3_leftover         8        8                optimal
        split_cores         0        0                optimal

        greedy would give  cpuset
        cpus               8-13,16-21,40-45,48-53
        """
    )


def test_compare_is_part_of_the_json_and_beside_the_plain_forms() -> None:
    machine = str(ROOT / "t.json")
    options = ("--policy", "distributed", "--compare", "--output")
    document = json.loads(placed(*options, "json", topology=machine))
    assert document["compare"]["greedy"] == {"status": "feasible", "cpusets": {"cpus": "8-13,16-21,40-45,48-53"}}
    assert document["compare"]["metrics"][2] == {
        "metric": "sockets", "greedy": 2, "best": 1, "bound": 1, "proof": "optimal",
    }  # fmt: skip
    plain = solve(*options, "cpuset", topology=machine)
    assert plain.stdout == "16-21,24-29,48-53,56-61\n"
    assert "sockets             2        1  <- 1 better   optimal" in plain.stderr


def test_compare_tells_proofs_bounds_and_stages_not_reached_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(values: dict[str, int], bounds: dict[str, int | None], cpus: set[int]) -> Result:
        given = Allocation(request="cpus", cpuset=cpus, mems={0}, policy="packed", metrics=values)
        return Result(status="feasible", engine="cpsat", allocations=(given,), metrics=values, bounds=bounds)

    bounds = {"numa_nodes": 1, "cores": 2, "split_cores": None}
    best = answer({"numa_nodes": 1, "cores": 4, "split_cores": 3}, bounds, {0, 1})
    greedy = answer({"numa_nodes": 2, "cores": 4, "split_cores": 1}, {}, {2, 3})
    assert [(row.gain, row.proof) for row in Comparison(greedy, best).rows()] == [
        (1, "optimal"), (0, "bound"), (-2, "not reached"),
    ]  # fmt: skip
    claim = wanted(synthetic.build("core:4"), None, {"cpus": 2}, ())
    Printout(synthetic.build("core:4"), claim, best, greedy).say("table", explain=False)
    assert capsys.readouterr().out.partition("0-1\n\n")[2] == text(
        """
        metric       greedy  best found  difference                      proof
        numa_nodes        2           1  <- 1 better                     optimal
        cores             4           4                                  at least 2
        split_cores       1           3  -> 2 worse, for a metric above  not reached

        greedy would give  cpuset
        cpus               2-3
        """
    )


def test_compare_says_when_greedy_is_as_good() -> None:
    found = placed("--cpus", "4", "--compare")
    assert found.endswith("\n\nThe greedy answer is as good as the optimal one: no metric differs.\n")
    given = Allocation(request="cpus", cpuset={0}, mems=(), policy="packed", metrics={"cores": 1})
    best = Result(status="optimal", engine="cpsat", allocations=(given,), metrics={"cores": 1})
    assert not Comparison(Result(status="unknown", engine="greedy"), best).is_even
    assert Comparison(best, best).is_even


def test_metrics_that_requests_count_differently_say_which_is_whose(tmp_path: Path) -> None:
    mixed = "- {name: a, cpus: 2, prefer_l3: true}\n- {name: b, cpus: 2}\n- {name: c, cpus: 2}\n"
    sentences = (
        "\nl3_caches+cores adds up l3_caches of a and cores of b, c.\n"
        "cores+l3_caches adds up cores of a and l3_caches of b, c.\n"
    )
    options = ("--claims", claims(tmp_path, mixed), "--engine", "greedy")
    assert placed(*options).endswith(sentences)
    assert sentences in placed(*options, "--explain")
    assert sentences in solve(*options, "--explain", "--output", "cpuset").stderr
    assert "adds up" not in placed(*options, "--output", "json")


def test_a_long_cpu_list_is_one_line_where_there_is_no_terminal() -> None:
    cpus = ",".join(map(str, range(0, 200, 2)))
    found = placed("--cpus", "100", "--free", cpus, "--engine", "greedy", "--explain", topology="core:200")
    assert f"cpus     packed   100  -     {cpus}\n" in found
    assert f"a  given to cpus   100 CPUs  {cpus}\n" in found


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_long_cpu_list_is_broken_after_commas_on_a_terminal(width: int) -> None:
    machine, cpus = synthetic.build("core:512"), range(100, 300, 2)
    given = Allocation(request="cpus", cpuset=set(cpus), mems=(), policy="packed", metrics={})
    result = Result(status="feasible", engine="greedy", allocations=(given,))
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as capture:
        for part in (*report.answer(result), *report.drawing(machine, result)):
            console.print(part)
    lists = re.findall(r"(?:^| )((?:\d+,)*1\d\d,(?:\d+,?)*) *$", capture.get(), re.MULTILINE)
    assert "…" not in capture.get()
    assert all(len(line) <= width for line in capture.get().splitlines())
    assert {100, 102, 198} <= {int(cpu) for line in lists for cpu in line.split(",") if cpu}
    assert all(int(cpu) in range(1000) and len(cpu) == 3 for line in lists for cpu in line.split(",") if cpu)


def test_explain_says_what_each_metric_means_and_draws_the_machine() -> None:
    found = placed("--cpus", "3", "--explain", "--held", "web=4,12", topology="socket:2 numa:1 core:4 cpu:2")
    assert found.partition("\n\n")[2] == text(
        """
        request  policy  CPUs  mems  cpuset
        cpus     packed     3  1     5-6,13

        metric         value  meaning
        numa_nodes         1  NUMA nodes that the CPUs lie in
        sockets            1  sockets that the CPUs lie in
        numa_distance      0  sum of the distances between those NUMA nodes, there and back
        core_types         1  types of cores among the CPUs
        cores              2  cores that the CPUs lie in
        l3_caches          0  L3s that the CPUs lie in
        numa_leftover      3  CPUs left free in the NUMA nodes used
        l3_leftover        0  CPUs left free in the L3s used
        split_cores        1  cores used that keep free CPUs, which others will have to share

        2s2n-8c16t
        2 sockets, 2 NUMA nodes, no L3, 8 cores, 16 CPUs (2 a core)

        socket 0, NUMA node 0  0-3,8-11  4 cores, 8 CPUs, 8 free
            no L3  0-3,8-11   .. .. .. ..

        socket 1, NUMA node 1  4-7,12-15  4 cores, 8 CPUs, 3 free
            no L3  4-7,12-15  bb aa a. ..

        .  free           11 CPUs  0-3,7-11,14-15
        a  given to cpus  3 CPUs   5-6,13
        b  held by web    2 CPUs   4,12

        NUMA distances
               0   1
           0  10  21
           1  21  10
        """
    )


def test_explain_of_a_clash_names_the_rules_and_the_nearest_that_would_be_placed() -> None:
    result = solve("--cpus", "7", "--full-cores", "--numa-max", "1", "--explain")
    assert result.exit_code == 1
    assert result.stderr.startswith("infeasible: ")
    assert result.stdout.startswith("These rules clash. Without any one of them the others could be met:\n")
    assert "Nearest: request cpus with cpus 6 (7 requested)\n" in result.stdout
    assert ".  free  16 CPUs  0-15\n" in result.stdout


def test_explain_beside_a_plain_form_goes_to_standard_error() -> None:
    result = solve("--cpus", "4", "--explain", "--output", "cpuset")
    assert result.stdout == "0-1,8-9\n"
    assert "NUMA nodes that the CPUs lie in" in result.stderr


def test_an_unknown_answer_and_a_clash_are_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    machine = synthetic.build("core:2")
    claim = wanted(machine, None, {"cpus": 3}, ())
    Printout(machine, claim, Result(status="unknown", engine="greedy")).say("cpuset", explain=False)
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n"), printed.err[:9]) == ("", 1, "unknown: ")
    rule = Rule(name="cpus", request="cpus", text="3 CPUs requested, 2 CPUs free", asked=3, available=2)
    near = Nearest(request="cpus", option="cpus", asked="3", instead="2")
    clash = Result(status="infeasible", engine="greedy", infeasible=Infeasible(rules=(rule,), nearest=near))
    Printout(machine, claim, clash).say("cpuset", explain=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "cpus     cpus          3         2  3 CPUs requested, 2 CPUs free" in printed.err


def test_an_unknown_answer_says_why_once() -> None:
    result = solve("--cpus", "4", "--engine", "cpsat", "--time-limit", "0")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == "unknown: CP-SAT found nothing in time\n"


def test_an_unknown_answer_exits_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.engine.solve", lambda *_, **__: Result(status="unknown", engine="greedy"))
    assert solve("--cpus", "4").exit_code == 4


def test_every_metric_has_a_meaning() -> None:
    assert MEANING.keys() == METRICS.keys()


# Which requests, and under which options.


def test_every_field_of_a_request_is_an_option_with_the_same_values() -> None:
    options = {option.name: option for option in REQUEST}
    assert options.keys() == Request.model_fields.keys()
    for name, option in options.items():
        if isinstance(option.type, click.Choice):
            assert tuple(option.type.choices) == get_args(Request.model_fields[name].annotation)
    strict = options["strict"].help or ""
    assert all(preference.replace("_", "-") in strict for preference in get_args(Preference))


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        ("--policy distributed", "policy", "distributed"),
        ("--full-cores", "full_cores", True),
        ("--no-full-cores", "full_cores", False),
        ("--threads spread", "threads", "spread"),
        ("--prefer-l3", "prefer_l3", True),
        ("--align-by-socket", "align_by_socket", True),
        ("--numa-min 2", "numa_min", 2),
        ("--numa-min all", "numa_min", "all"),
        ("--numa-max 1", "numa_max", 1),
        ("--numa-ids 0-1", "numa_ids", frozenset({0, 1})),
        ("--fit loose", "fit", "loose"),
        ("--core-type efficiency", "core_type", "efficiency"),
        ("--near 0-3", "near", "0-3"),
        ("--within 0-7", "within", frozenset(range(8))),
        ("--strict all", "strict", True),
        ("--strict none", "strict", False),
        ("--strict policy,numa-min --strict near", "strict", frozenset({"policy", "numa_min", "near"})),
        ("--name web", "name", "web"),
        ("--cpus 2", "cpus", 2),
    ],
)
def test_an_option_overrides_what_the_claims_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, field: str, value: object
) -> None:
    asked: list[Request] = []

    def fake(_: object, requests: tuple[Request, ...], **__: object) -> Result:
        asked.extend(requests)
        return Result(status="unknown", engine="greedy")

    monkeypatch.setattr("solver.engine.solve", fake)
    base = {"name": "a", "cpus": 4, "full_cores": args == "--no-full-cores", "strict": ["prefer_l3"]}
    assert solve("--claims", claims(tmp_path, json.dumps([base])), *args.split()).exit_code == 4
    assert asked == [Request.model_validate({**base, field: value})]


def test_options_override_every_request(tmp_path: Path) -> None:
    claim = read_claim(claims(tmp_path, TWO))
    found = wanted(synthetic.build("core:2"), claim, {"policy": "packed", "numa_min": "1"}, ())
    assert [(request.policy, request.numa_min) for request in found.requests] == [("packed", 1)] * 2


@pytest.mark.parametrize(
    ("kind", "option", "level", "requests"),
    [
        ("match", "l3", "l3", ()),
        ("distinct", "numa:a,b", "numa", ("a", "b")),
        ("match", "socket: a", "socket", ("a",)),
    ],
)
def test_constraints_are_written_level_and_names(
    kind: str, option: str, level: Level, requests: tuple[str, ...]
) -> None:
    found = constraint(kind, option)
    assert found == Constraint.model_validate({kind: level, "requests": requests})


def test_constraints_on_the_command_line_replace_those_of_the_claims(tmp_path: Path) -> None:
    pair = "{requests: [{name: a, cpus: 2}, {name: b, cpus: 2}], constraints: [{match: numa}]}"
    options = ("--claims", claims(tmp_path, pair), "--engine", "greedy", "--output", "cpuset")
    assert placed(*options) == "a: 0,8\nb: 1,9\n"
    assert placed(*options, "--distinct", "numa:a,b") == "a: 0,8\nb: 4,12\n"


def test_claims_stand_in_for_the_requests_of_the_document(tmp_path: Path) -> None:
    options = ("--engine", "greedy", "--output", "cpuset")
    assert placed("--claims", claims(tmp_path, "- cpus: 2"), *options, topology=str(ROOT / "t.json")) == "4,36\n"


@pytest.mark.parametrize(
    "content",
    [
        "- {name: a, cpus: 4, within: 0-3}",
        '[{"name": "a", "cpus": 4, "within": "0-3"}]',
        '{"requests":\t[{"name": "a", "cpus": 4, "within": "0-3"}]}',
        "requests:\n- name: a\n  cpus: 4\n  within: 0-3\n",
        "[{name: a, cpus: 04, within: '0-3'}]",
    ],
)
def test_claims_are_read_from_yaml_and_json(tmp_path: Path, content: str) -> None:
    found = read_claim(claims(tmp_path, content))
    assert found.requests == (Request(name="a", cpus=4, within=frozenset(range(4))),)


def test_yaml_has_the_plain_values_of_its_version_1_2(tmp_path: Path) -> None:
    content = "- {cpus: 010, full_cores: True, numa_max: ~, near: 1:30, name: 2001-01-01x}"
    (request,) = read_claim(claims(tmp_path, content)).requests
    assert (request.cpus, request.full_cores, request.numa_max, request.near) == (10, True, None, "1:30")


@pytest.mark.parametrize("name", ["claims.yaml", "distributed.yaml", "strict.json"])
def test_the_examples_are_placed_on_the_example_machine(name: str) -> None:
    example = str(ROOT / "examples" / name)
    result = solve("--claims", example, "--engine", "greedy", "--output", "json", topology=str(ROOT / "t.json"))
    assert (result.exit_code, result.stderr) == (0, "")
    placed_requests = [given["request"] for given in json.loads(result.stdout)["allocations"]]
    assert placed_requests == [request.name for request in read_claim(example).requests]


def test_the_example_machine_has_everything_a_document_can_have() -> None:
    machine = load(str(ROOT / "t.json"))
    assert all((machine.numa_nodes, machine.devices, machine.reserved, machine.held, machine.requests))


# Which CPUs are free.

STATE = '{"policyName": "static", "defaultCpuSet": "0,8", "entries": {"pod": {"app": "1-2,9-10"}}, "checksum": 1}'


@pytest.mark.parametrize(
    ("args", "cpuset"),
    [
        ("--cpus 8", "0-3,8-11"),
        ("--cpus 8 --reserved 0,8", "4-7,12-15"),
        ("--cpus 6 --held web=0,8", "1-3,9-11"),
        ("--cpus 4 --held web=0,8 --held db=1,9", "2-3,10-11"),
        ("--cpus 4 --held web=0,8 --held web=1,9", "2-3,10-11"),
        ("--cpus 2 --held STATE", "3,11"),
        ("--cpus 4 --free 2,5,7,15", "2,5,7,15"),
        ("--cpus 2 --free 0,2,8,10 --reserved 0,8", "2,10"),
    ],
)
def test_reserved_held_and_free_cpus_are_those_of_the_options(tmp_path: Path, args: str, cpuset: str) -> None:
    state = tmp_path / "cpu_manager_state"
    state.write_text(STATE)
    words = args.replace("STATE", str(state)).split()
    if "STATE" in args:
        words += ["--reserved", "0,8"]
    assert placed(*words, "--engine", "cpsat", "--output", "cpuset") == f"{cpuset}\n"


def test_free_overrides_what_the_document_says_is_held() -> None:
    options = ("--cpus", "4", "--engine", "greedy", "--output", "cpuset")
    assert placed(*options, "--free", "1-2,33-34", topology=str(ROOT / "t.json")) == "1-2,33-34\n"


def test_reserved_replaces_what_the_document_reserves() -> None:
    options = ("--cpus", "58", "--engine", "greedy", "--output", "cpuset")
    assert placed(*options, "--reserved", "", topology=str(ROOT / "t.json")) == "0,4-32,36-63\n"
