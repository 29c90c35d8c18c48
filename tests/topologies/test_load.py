"""Which source is which, and what an unknown one says."""

import contextlib
import io
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import BadInputError
from tests.topologies.helpers import domains, short, sysfs_cpu, write_tree
from tests.topologies.test_readers_hwloc import NODES, TWO_SOCKETS, document
from tests.topologies.test_readers_lscpu import PARSABLE, SUMMARY, flat, plain
from topologies import catalog
from topologies.load import load, read_text

NATIVE = '{"cpus": [{"cpu": 0, "core": 0}, {"cpu": 1, "core": 1}, {"cpu": 2, "core": 0}, {"cpu": 3, "core": 1}]}'
XML = document(NODES + TWO_SOCKETS)
PAIRS = ["0,2", "1,3"]


@pytest.mark.parametrize("text", [NATIVE, "\n " + NATIVE, XML, PARSABLE])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_is_recognised_by_its_content_and_names_the_machine(text: str, mark: str, tmp_path: Path):
    path = tmp_path / "node-7.txt"
    path.write_text(mark + text)
    topology = load(str(path))
    assert domains(topology, "core") == PAIRS
    assert topology.name == "node-7"


@pytest.mark.parametrize("text", [NATIVE, XML, PARSABLE])
def test_standard_input_takes_any_of_the_file_formats(text: str):
    assert domains(load("-", stdin=io.StringIO(text)), "core") == PAIRS
    assert domains(load("-", stdin=io.TextIOWrapper(io.BytesIO(text.encode()))), "core") == PAIRS


def test_a_pipe_is_read_as_a_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(PARSABLE,))
    writer.start()
    assert domains(load(str(tmp_path / "pipe")), "core") == PAIRS
    writer.join()


def test_a_directory_is_a_sysfs_tree(tmp_path: Path):
    write_tree(tmp_path / "node-9", sysfs_cpu(0, "0,1") | sysfs_cpu(1, "0,1"))
    topology = load(str(tmp_path / "node-9"))
    assert domains(topology, "core") == ["0-1"]
    assert topology.name == "node-9"


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0").exists(), reason="no sysfs on this machine")
def test_host_is_this_machine():
    topology = load("host")
    assert topology.name == "host"
    assert os.sched_getaffinity(0) <= topology.online


def test_a_catalog_name_is_that_machine_and_a_synthetic_string_is_built():
    name = catalog.names()[0]
    assert load(name) == catalog.read(name)
    assert len(load("socket:2 core:4 cpu:2").cpus) == 16


def test_a_path_comes_before_a_synthetic_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("socket:2").write_text(NATIVE)
    assert domains(load("socket:2"), "core") == PAIRS


def test_a_path_of_a_reserved_word_is_written_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("host").write_text(NATIVE)
    assert domains(load("./host"), "core") == PAIRS


@pytest.mark.parametrize("source", ["", "no-such-thing", "a/b/c.json", "x" * 10_000, "with\0nul"], ids=short)
def test_an_unknown_source_says_what_was_tried_and_the_way_out(source: str):
    with pytest.raises(BadInputError) as error:
        load(source)
    for way_out in ("no file or directory", "catalog", "'socket:2 core:8 cpu:2'", "'host'", "'-'"):
        assert way_out in error.value.reason
    assert len(str(error.value)) < 500


def test_a_near_miss_of_a_catalog_name_is_shown_the_name():
    name = catalog.names()[0]
    with pytest.raises(BadInputError, match=name):
        load(name[:-1])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xff\xfe<\0t\0", "is UTF-16 text; save it as UTF-8"),
        (b"\x1f\x8b\x08\0\0", "is not UTF-8 text (byte 1); is it compressed or binary?"),
        (b"{\0}", "is not text: it holds NUL bytes"),
        (
            b"hello\n",
            "this is neither a topology document (JSON) nor hwloc XML nor output of lscpu (plain, -p, -e, -J)",
        ),
        (
            plain(SUMMARY | {"Thread(s) per core": "2"}).encode(),
            "does not say which CPUs are siblings of one core; use lscpu -p, lscpu -J -e or the /sys directory",
        ),
    ],
)
def test_a_file_that_is_no_machine_is_one_clear_error(data: bytes, reason: str, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(BadInputError) as error:
        load(str(path))
    assert str(error.value) == f"{path}: {reason}"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path):
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(65 * 2**20)
    with pytest.raises(BadInputError, match="is larger than 64 MB"):
        load(str(path))


def test_standard_input_is_named_in_errors():
    with pytest.raises(BadInputError, match=r"^<stdin>: is empty$"):
        load("-", stdin=io.StringIO(""))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path):
    path = tmp_path / "secret"
    path.write_text(NATIVE)
    path.chmod(0)
    with pytest.raises(BadInputError, match="cannot be read: Permission denied"):
        load(str(path))


@given(st.sampled_from([NATIVE, XML, PARSABLE, flat(SUMMARY), plain(SUMMARY)]), st.randoms(use_true_random=False))
def test_damaged_text_is_read_or_refused_but_never_crashes(text: str, chance: random.Random):
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        junk = chance.choice(
            ["", "", "-", "99999999999", "<", '"', ",", "0xf...f", "null", "\n", "UTF-9", "[", "}"]
        )
        text = text[:at] + junk + text[at + chance.randint(0, 9) :]
    with contextlib.suppress(BadInputError):
        assert read_text(text).online
