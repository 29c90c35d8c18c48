import io
import json
import os
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cpusat.cli
from cpusat.cli.claims import MAX_CHARACTERS
from cpusat.cli.options import MOST_WORKERS
from models import BadInputError
from solver import inputs
from tests.shell import shell
from topologies.readers.yaml_text import parse_yaml
from topologies.terminal.program import brief

TWO_SOCKETS = "socket:2 numa:1 l3:1 core:4 cpu:2"


def solve(*args: str, topology: str = TWO_SOCKETS, stdin: bytes | None = None) -> Result:
    line = ["solve", "--topology", topology, "--engine", "greedy", "--output", "cpuset", *args]
    return CliRunner().invoke(cpusat.cli.main, line, prog_name="cpusat", input=stdin)


def error(*args: str, **options: object) -> str:
    """The one line that the command answers with."""
    result = solve(*args, **options)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 700
    return result.stderr.removeprefix("error: ").removesuffix("\n")


OPTIONS = {
    "no request anywhere": ("", "no request: say how many CPUs with --cpus N, or give --claims FILE"),
    "zero CPUs": ("--cpus 0", "--cpus: Input should be greater than or equal to 1"),
    "fewer than zero CPUs": ("--cpus -1", "--cpus: Input should be greater than or equal to 1"),
    "half a CPU": ("--cpus 1.5", "'--cpus': '1.5' is not a valid integer"),
    "a number in exponents": ("--cpus 1e9", "'--cpus': '1e9' is not a valid integer"),
    "more CPUs than any machine has": ("--cpus 1000000000", "--cpus: Input should be less than or equal to 65536"),
    "a number of 5000 digits": (f"--cpus {'9' * 5000}", "'--cpus': '999"),
    "a word for a number": ("--cpus four", "'--cpus': 'four' is not a valid integer"),
    "an unknown policy": ("--cpus 4 --policy even", "'even' is not one of 'packed', 'distributed'"),
    "a mistyped option": ("--cpus 4 --polcy packed", "--policy"),
    "an option without its value": ("--cpus 4 --name", "Option '--name' requires an argument"),
    "a word too many": ("--cpus 4 extra", "unexpected extra argument"),
    "an unknown form of output": ("--cpus 4 --output xml", "'xml' is not one of"),
    "an unknown engine": ("--cpus 4 --engine magic", "'magic' is not one of"),
    "free CPUs that run backwards": ("--cpus 4 --free 3-1", "--free: range '3-1' runs backwards"),
    "free CPUs beyond all bounds": ("--cpus 4 --free 0-99999999999", "--free: CPU 99999999999 is above"),
    "free CPUs that are no list": ("--cpus 4 --free a", "--free: 'a' is not a CPU number or a range such as 0-3"),
    "free CPUs that are not online": ("--cpus 4 --free 0-99", "--free: CPUs 16-99 are not online"),
    "free and held together": ("--cpus 4 --free 0-7 --held a=8", "--free and --held contradict each other"),
    "held CPUs that are not online": ("--cpus 4 --held a=99", "CPUs 99 are held by 'a' but not online"),
    "CPUs held twice": ("--cpus 4 --held a=1 --held b=1", "CPU 1 is held by 'b' and is held by 'a' too"),
    "CPUs held and reserved": ("--cpus 4 --reserved 0 --held a=0", "CPU 0 is held by 'a' and is reserved too"),
    "held CPUs that are no list": ("--cpus 4 --held a=b", "--held: 'b' is not a CPU number"),
    "a state file that is not there": ("--cpus 4 --held state", "and there is no file 'state'"),
    "a directory for a state file": ("--cpus 4 --held /", "/: cannot be read: Is a directory"),
    "a state file of something else": ("--cpus 4 --held /etc/hostname", "/etc/hostname: "),
    "reserved CPUs that are not online": ("--cpus 4 --reserved 77", "CPUs 77 are reserved but not online"),
    "reserved CPUs that are no list": ("--cpus 4 --reserved 1,,2", "--reserved: '' is not a CPU number"),
    "a time limit that is no number": ("--cpus 4 --time-limit nan", "is not a number of seconds, 0 or more"),
    "a time limit without end": ("--cpus 4 --time-limit inf", "is not a number of seconds, 0 or more"),
    "a time limit in the past": ("--cpus 4 --time-limit -1", "'--time-limit': -1.0 is not in the range"),
    "no workers": ("--cpus 4 --workers 0", "'--workers': 0 is not in the range"),
    "a million workers": ("--cpus 4 --workers 1000000", "'--workers': 1000000 is not in the range"),
    "a seed beyond what engines take": (
        "--cpus 4 --seed 99999999999",
        "'--seed': 99999999999 is not in the range",
    ),
    "a floor that is a word": (
        "--cpus 4 --numa-min most",
        "--numa-min: 'most' is neither a number of at least 1 nor 'all'",
    ),
    "a floor of zero": (
        "--cpus 4 --numa-min 0",
        "--numa-min: expected a number of NUMA nodes from 1 to 4096, or all",
    ),
    "a floor beyond all bounds": (
        "--cpus 4 --numa-min 99999",
        "--numa-min: expected a number of NUMA nodes from 1 to 4096, or all",
    ),
    "a floor in other digits": ("--cpus 4 --numa-min ²", "--numa-min: '²' is neither a number"),
    "a ceiling of zero": ("--cpus 4 --numa-max 0", "--numa-max: Input should be greater than or equal to 1"),
    "NUMA nodes that run backwards": ("--cpus 4 --numa-ids 3-1", "--numa-ids: range '3-1' runs backwards"),
    "a preference that there is not": ("--cpus 4 --strict foo", "--strict: 'foo' is not one of policy, numa-min"),
    "a strict fit": ("--cpus 4 --strict fit", "--strict: 'fit' is not one of"),
    "strict all and one": ("--cpus 4 --strict all,policy", "give 'all' or 'none' alone"),
    "whole cores and single threads": (
        "--cpus 4 --threads spread --full-cores",
        "request 'cpus': threads: spread and full_cores contradict each other; drop one",
    ),
    "a floor above the ceiling": (
        "--cpus 4 --numa-min 3 --numa-max 2",
        "request 'cpus': numa_min 3 is above numa_max 2",
    ),
    "too narrow a within": ("--cpus 4 --within 0-1", "4 CPUs cannot come from within, which names 2"),
    "a within that is no list": ("--cpus 4 --within x", "--within: 'x' is not a CPU number"),
    "an unknown device": ("--cpus 4 --near nic", "near: 'nic' is neither a device of this machine"),
    "an unknown level": ("--cpus 4 --match core", "--match: 'core' is not LEVEL or LEVEL:NAME,NAME"),
    "a constraint on nobody": ("--cpus 4 --distinct numa:,", "--distinct: 'numa:,' is not LEVEL"),
    "a constraint on a stranger": ("--cpus 4 --match numa:x", "constraint names the unknown request 'x'"),
    "two documents on standard input": ("--topology - --claims -", "cannot both be standard input"),
    "greedy compared with itself": ("--cpus 4 --compare", "--compare needs an exact engine"),
    "greedy compared with itself for lack of time": (
        "--cpus 4 --engine auto --time-limit 0 --compare",
        "--compare needs time for an exact engine",
    ),
    "a topology that is not there": ("--cpus 4 --topology nowhere.json", "no file or directory has this name"),
    "claims that are not there": ("--claims nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
    "a directory for claims": ("--claims /", "/: cannot be read: Is a directory"),
}


@pytest.mark.parametrize(("args", "reason"), OPTIONS.values(), ids=OPTIONS.keys())
def test_mistaken_options_are_answered_in_one_line(args: str, reason: str) -> None:
    assert reason in error(*args.split())


@pytest.mark.parametrize("value", ["", " ", "\x1b[2J", "a b", "\udcff", "x" * 5000])
@pytest.mark.parametrize("option", ["--name", "--held", "--near", "--within", "--strict", "--match", "--claims"])
def test_odd_texts_for_options_are_answered_in_one_line_or_taken(option: str, value: str) -> None:
    result = solve("--cpus", "4", option, value)
    assert result.exit_code in (0, 2)
    assert result.stderr.count("\n") == (1 if result.exit_code else 0)


CLAIMS = {
    "an empty file": ("", "is empty"),
    "nothing but a comment": ("# later\n", "is neither a claim"),
    "a text": ("hello", "is neither a claim, {requests: [...], constraints: [...]}, nor a list of requests"),
    "a Kubernetes object": ("kind: ResourceClaim\nspec: {}\n", "is neither a claim"),
    "requests that are a number": ("requests: 4", "requests: "),
    "no requests": ("requests: []", "requests: "),
    "a request that is a number": ("[4]", "requests.0: "),
    "an unknown key": ("- {cpus: 4, colour: red}", "requests.0.colour: unknown key"),
    "an unknown key of the claim": ("{requests: [{cpus: 4}], spec: 1}", "spec: unknown key"),
    "a size that is a text": ("- cpus: '4'", "requests.0.cpus: Input should be a valid integer"),
    "a size that is a fraction": ("- cpus: 4.0", "requests.0.cpus: Input should be a valid integer"),
    "a size that is not a number": ("- cpus: .nan", "requests.0.cpus: Input should be a valid integer"),
    "a size that is a date": ("- cpus: 2026-01-01", "requests.0.cpus: Input should be a valid integer"),
    "a size of 5000 digits": (f"- cpus: {'9' * 5000}", "requests.0.cpus: Input should be a valid integer"),
    "a size of 5000 digits in JSON": (
        f'[{{"cpus": {"9" * 5000}}}]',
        "requests.0.cpus: Input should be a valid integer",
    ),
    "CPUs that run backwards": ("- {cpus: 4, within: 3-1}", "requests.0.within: range '3-1' runs backwards"),
    "options that contradict": ("- {cpus: 4, threads: spread, full_cores: true}", "contradict each other"),
    "two requests of one name": ("- cpus: 4\n- cpus: 4\n", "request name 'cpus' is given twice"),
    "a constraint on a stranger": ("{requests: [{cpus: 4}], constraints: [{match: numa, requests: [x]}]}", "'x'"),
    "a key given twice": ("- {cpus: 4, cpus: 5}", "line 1, column 3: a key is given twice in one mapping"),
    "a bomb of aliases": ("a: &a [x, x]\nb: &b [*a, *a]\n", "line 2, column 8: aliases are not read"),
    "a recursive alias": ("&a [*a]", "line 1, column 5: aliases are not read"),
    "a tag": ("- cpus: !!python/object/apply:os.system ['true']", "line 1, column 9: tags are not read"),
    "a tag on a plain value": ("- cpus: !!bool x", "line 1, column 9: tags are not read"),
    "two documents": ("- cpus: 4\n---\n- cpus: 5\n", "line 2, column 1: holds more than one YAML document"),
    "a mapping for a key": ("- {? [1] : 4}", "is not valid YAML: found unhashable key"),
    "a tab for an indent": ("- cpus: 4\n\tname: x\n", "line 2, column 1: is not valid YAML"),
    "an open bracket": ("[{cpus: 4}", "is not valid YAML"),
    "brackets without end": ("[" * 100_000, "nest"),
    "braces without end": ('{"a":' * 100_000, "is nested too deeply"),
    "dashes without end": ("- " * 100_000, "is nested too deeply"),
    "a hundred thousand values": ("[" + "a," * 100_000 + "]", "holds too many values"),
    "a megabyte and more": ("#" * (MAX_CHARACTERS + 1), "characters are more than a claim can have"),
}


@pytest.mark.parametrize(("content", "reason"), CLAIMS.values(), ids=CLAIMS.keys())
def test_mistaken_claims_are_answered_in_one_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(content)
    said = error("--claims", str(path))
    assert said.startswith(f"{path}: ")
    assert reason in said


BYTES = {
    "NUL bytes": (b"- cpus: 4\0", "is not text: it holds NUL bytes"),
    "bytes that are no text": (b"\x1f\x8b\x08\xff", "is not UTF-8 text"),
    "UTF-16": ("- cpus: 4".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "control characters": (b"- cpus: \x07", "is not valid YAML: "),
}


@pytest.mark.parametrize(("content", "reason"), BYTES.values(), ids=BYTES.keys())
def test_claims_that_are_no_text_are_answered_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_bytes(content)
    assert reason in error("--claims", str(path))
    assert reason in error("--claims", "-", stdin=content)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    assert "is larger than 64 MB" in error("--claims", str(path))
    assert "is larger than 64 MB" in error("--cpus", "4", "--held", str(path))
    assert "is larger than 64 MB" in error("--cpus", "4", topology=str(path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("- cpus: 4")
    path.chmod(0)
    assert f"{path}: cannot be read: Permission denied" in error("--claims", str(path))


def test_json_is_judged_as_json_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "claims.json"
    path.write_text('[{"cpus": four}]')
    assert "claims.json: line 1, column 11: is not valid JSON" in error("--claims", str(path))


@pytest.mark.parametrize("option", ["--cpus 4", "--name web"])
def test_what_only_one_request_can_have_is_refused_for_several(tmp_path: Path, option: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("[{name: a, cpus: 1}, {name: b, cpus: 1}]")
    said = error("--claims", str(path), *option.split())
    assert said == f"{option.split()[0]}: is for one request, and there are 2; set it where they are written"


def test_a_missing_topology_is_one_line() -> None:
    result = CliRunner().invoke(cpusat.cli.main, ["solve", "--cpus", "4"], prog_name="cpusat")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: Missing option '--topology'. See 'cpusat solve --help'.\n"


def answered(*args: str, **options: object) -> None:
    """Whatever came in: an answer or one line, never a defect."""
    result = solve(*args, **options)
    assert result.exit_code in (0, 1, 2, 4), result.output
    assert "Traceback" not in result.stderr
    if result.exit_code:
        assert result.stderr.count("\n") == 1


FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
VALUES = ["4", "-1", "1e9", "0x10", "1:30", "~", "true", ".inf", "0-3", "3-1", "é", "\t", "<<", "---\n"]
KEYS = ["requests", "constraints", "cpus", "name", "near", "strict", "match", "numa", "cpu", "core", "socket"]
MARKS = [
    *[": ", ", ", "- ", "\n", "\n  ", "{", "}", "[", "]", "'", "&a ", "*a ", "!!int ", "? ", "#", "%"],
    '"',
    "| ",
]
WORDS = st.lists(st.sampled_from(KEYS + VALUES + MARKS), max_size=40).map(lambda words: "".join(words).encode())
ANYTHING = st.one_of(
    st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
)


@FUZZ
@given(st.one_of(ANYTHING, WORDS))
def test_any_bytes_for_claims_are_answered(content: bytes) -> None:
    answered("--claims", "-", stdin=content)


@FUZZ
@given(st.one_of(ANYTHING, WORDS, WORDS.map(lambda words: b'{"cpus": [' + words)))
def test_any_bytes_for_a_topology_are_answered(content: bytes) -> None:
    answered("--cpus", "1", topology="-", stdin=content)


@FUZZ
@given(st.one_of(ANYTHING, WORDS, WORDS.map(lambda words: b'{"policyName": "static", "entries": {' + words)))
def test_any_bytes_for_a_state_file_are_answered(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "state"
    path.write_bytes(content)
    answered("--cpus", "1", "--held", str(path))


@FUZZ
@given(
    st.sampled_from(
        ["cpus", "free", "reserved", "held", "numa-ids", "within", "near", "strict", "match", "distinct"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)
def test_any_text_for_an_option_is_answered(option: str, value: str) -> None:
    answered("--cpus", "1", f"--{option}={value}")


@FUZZ
@given(WORDS)
def test_yaml_is_a_value_or_bad_input(content: bytes) -> None:
    with suppress(BadInputError):
        json.dumps(parse_yaml(content.decode()))


def test_yaml_is_read_alike_without_the_c_part_of_pyyaml() -> None:
    script = """
        import yaml
        del yaml.CSafeLoader
        from topologies.readers.yaml_text import parse_yaml
        assert yaml.SafeLoader in parse_yaml.__globals__["_Loader"].__mro__
        assert parse_yaml("- {cpus: 4, within: 0-3}") == [{"cpus": 4, "within": "0-3"}]
        for text in ("&a [*a]", "- " * 100_000, "a: 1\\na: 2", "!!int 4", "--- 1\\n--- 2"):
            try:
                parse_yaml(text)
            except Exception as error:
                assert type(error).__name__ == "BadInputError", error
            else:
                raise AssertionError(text)
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_while_writing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit) as ended:
        cpusat.cli.solve_command(
            ["--topology", "core:1", "--cpus", "1", "--engine", "greedy", "--output", "cpuset"]
        )
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("line", "code", "shown"),
    [
        ("solve --topology core:4 --cpus 2 --name é", 0, "\\xe9        packed"),
        ("solve --topology core:4 --cpus 2 --name é --explain", 0, "given to \\xe9"),
        ("solve --topology core:4 --cpus 2 --name é --output json", 0, '"request": "\\u00e9"'),
        ("topology show core:4 --held é=1", 0, "held by \\xe9"),
        ("topology convert core:4 --held é=1", 0, '"held": {"\\u00e9": "1"}'),
        ("topology validate é", 2, "bad  '\\xe9'"),
        ("solve --topology core:4 --cpus é", 2, "error: Invalid value for '--cpus': '\\xe9' is not"),
        ("solve --topology é --cpus 2", 2, "error: '\\xe9': no file or directory has this name"),
        ("solve --topology core:4 --held é=9 --cpus 2", 2, "error: CPUs 9 are held by '\\xe9' but not online"),
    ],
)
def test_characters_that_an_encoding_lacks_are_shown_as_escapes(line: str, code: int, shown: str) -> None:
    done = shell(f"{{cpusat}} {line} 2>&1", PYTHONIOENCODING="ascii")
    assert done.returncode == code
    assert shown in done.stdout
    assert done.stdout.isascii()
    assert "Traceback" not in done.stdout


LONG = "k" * 1_000_000


@pytest.mark.parametrize(
    "document",
    [
        {"cpus": [{"cpu": 0, "core": 0}], LONG: 1},
        {"cpus": [{"cpu": 0, "core": 0, LONG: 1}]},
        {"cpus": [{"cpu": 0, "core": 0}], "held": {LONG: "0"}},
        {"cpus": [{"cpu": 0, "core": 0}], "kind": LONG},
        {"cpus": [{"cpu": 0, "core": 0}], "reserved": LONG},
    ],
    ids=["a key", "a key of a CPU", "a holder", "a kind", "a CPU list"],
)
def test_what_was_handed_in_makes_no_error_long(tmp_path: Path, document: dict[str, object]) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(document))
    assert error("--cpus", "1", topology=str(path)).startswith(f"{path}: ")
    checked = CliRunner().invoke(cpusat.cli.main, ["topology", "validate", str(path)])
    assert checked.exit_code == 2
    assert len(checked.stdout) < 700


def test_an_error_without_its_middle_keeps_both_ends() -> None:
    short = brief(BadInputError("r" * 300 + "END", place="AB" + "p" * 1000 + "YZ", file="f"))
    assert short == "f: AB" + "p" * 98 + "..." + "p" * 95 + "YZ: " + "r" * 300 + "END"


CLASHES = {
    "CPUs that are not online": ({"uid": {"c": "99"}}, (), "CPUs 99 are held by 'uid/c' but not online"),
    "CPUs of another claim": (
        {"uid": {"c": "1"}},
        ("--held", "a=1"),
        "CPU 1 is held by 'uid/c' and is held by 'a'",
    ),
    "reserved CPUs": ({"uid": {"c": "1"}}, ("--reserved", "1"), "CPU 1 is held by 'uid/c' and is reserved too"),
    "CPUs twice": ({"u": {"c": "1", "d": "1"}}, (), "CPU 1 is held by 'u/d' and is held by 'u/c' too"),
    "a name with blanks": ({"u u": {"c": "1"}}, (), "held.u u/c"),
    "a long name": ({"u" * 300: {"c": "1"}}, (), "held.uuu"),
}


@pytest.mark.parametrize(("entries", "more", "reason"), CLASHES.values(), ids=CLASHES.keys())
def test_a_state_that_clashes_with_the_machine_is_named(
    tmp_path: Path, entries: dict[str, object], more: tuple[str, ...], reason: str
) -> None:
    path = tmp_path / "state"
    path.write_text(json.dumps({"policyName": "static", "defaultCpuSet": "0", "entries": entries}))
    said = error("--cpus", "1", *more, "--held", str(path))
    assert said.startswith(f"{path}: {reason}")


def test_a_claim_that_clashes_is_not_blamed_on_a_state(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text('{"policyName": "static", "defaultCpuSet": "0", "entries": {"u": {"c": "1"}}}')
    for held in (("a=99", str(path)), (str(path), "a=99")):
        said = error("--cpus", "1", *(word for each in held for word in ("--held", each)))
        assert said == "CPUs 99 are held by 'a' but not online"


def test_the_command_line_takes_as_many_workers_as_the_library() -> None:
    assert MOST_WORKERS == inputs.MOST_WORKERS
