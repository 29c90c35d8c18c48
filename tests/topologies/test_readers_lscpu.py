"""What ``lscpu`` prints, in its many forms."""

import json

import pytest

from models import BadInputError, Topology
from tests.topologies.helpers import domains, numa, short
from topologies.load import read_text
from topologies.readers.lscpu import read_lscpu_table

PARSABLE = """# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,0,0,0,,0,0,0,0
3,1,0,0,,1,1,1,0
"""


def test_parsable_output_gives_cores_numa_nodes_and_l3s():
    topology = read_text(PARSABLE)
    assert domains(topology, "core") == ["0,2", "1,3"]
    assert domains(topology, "l3") == domains(topology, "socket") == ["0-3"]
    assert numa(topology) == {"0": "0-3"}


def test_columns_are_found_by_name_in_any_order():
    topology = read_text(
        "# SOCKET,CPU,CORE\n1,5,0\n".replace("# SOCKET,CPU", "# CPU,SOCKET").replace("1,5", "5,1")
    )
    assert [(cpu.cpu, cpu.core, cpu.numa, cpu.l3) for cpu in topology.cpus] == [(5, 0, None, None)]


def test_the_table_for_people_is_read_too():
    text = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n0 0 0 0 0:0:0:0 yes\n1 - - - - no\n2 1 1 1 4:4:4:1 yes\n"
    topology = read_text(text)
    assert domains(topology, "core") == domains(topology, "l3") == ["0", "2"]
    assert numa(topology) == {"0": "0", "1": "2"}


def test_empty_and_dashed_values_mean_none():
    topology = read_text("# CPU,Core,Socket,Node\n0,0,,\n1,1,-,-\n")
    assert [(cpu.socket, cpu.numa, cpu.l3) for cpu in topology.cpus] == [(0, None, None)] * 2


def test_a_row_with_nothing_but_its_number_is_an_offline_cpu():
    assert domains(read_text("# CPU,Core,Socket,Node\n0,0,0,0\n1,,,\n2,1,0,0\n"), "core") == ["0", "2"]


def test_core_numbers_that_restart_with_each_model_are_told_apart_by_caches():
    rows = "".join(f"{cpu},{cpu % 2},0,,,{cpu},{cpu},{cpu},0\n" for cpu in range(6))
    topology = read_text("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n" + rows)
    assert domains(topology, "core") == ["0", "1", "2", "3", "4", "5"]


def test_siblings_with_an_l1_each_and_one_l2_stay_one_core():
    rows = "".join(f"{cpu},{cpu // 2},0,0,,{cpu},{cpu},{cpu // 2}\n" for cpu in range(4))
    assert domains(read_text("# CPU,Core,Socket,Node,,L1d,L1i,L2\n" + rows), "core") == ["0-1", "2-3"]


def test_sockets_of_two_books_are_told_apart():
    topology = read_text("# CPU,Core,Socket,Book\n0,0,0,0\n1,1,0,1\n")
    assert domains(topology, "socket") == ["0", "1"]


def test_core_numbers_that_repeat_in_each_socket_are_two_cores():
    topology = read_text("# CPU,Core,Socket,Node\n0,8,3,0\n1,8,7,1\n")
    assert domains(topology, "core") == domains(topology, "socket") == ["0", "1"]


def test_more_siblings_than_any_core_has_are_refused_with_the_way_out():
    rows = "".join(f"{cpu},0,0,0\n" for cpu in range(9))
    with pytest.raises(BadInputError, match=r"9 CPUs have core 0 .* core numbers repeat; use lscpu -p without -y"):
        read_text("# CPU,Core,Socket,Node\n" + rows)


def listed(*rows: dict[str, object]) -> str:
    return json.dumps({"cpus": rows}, indent=3)


ROW = {"cpu": 0, "node": 0, "socket": 0, "core": 0, "l1d:l1i:l2:l3": "0:0:0:1", "online": True}


def test_the_json_list_is_read():
    topology = read_text(listed(ROW, ROW | {"cpu": 4, "core": 1, "l1d:l1i:l2:l3": "1:1:1:1"}))
    assert domains(topology, "core") == ["0", "4"]
    assert domains(topology, "l3") == ["0,4"]


def test_the_json_list_with_texts_for_numbers_is_read():
    assert domains(read_text(listed({"cpu": "0", "core": "0"}, {"cpu": "1", "core": "0"})), "core") == ["0-1"]


def test_the_invalid_json_of_an_offline_cpu_is_repaired():
    offline = {"cpu": 1, "node": "@", "socket": None, "core": None, "l1d:l1i:l2:l3": "-", "online": False}
    text = listed(ROW, offline).replace('"@"', "-")
    assert '"node": -,' in text
    assert domains(read_text(text), "core") == ["0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# CPU,Core,Socket,Node\n0,0,0\n", "line 2: has 3 columns, the header has 4"),
        ("# CPU,Core,Socket,Node\n0,0,0,0\n0,1,0,0\n", "CPU 0 is given twice"),
        ("# CPU,Core,Socket,Node\n0,zero,0,0\n", "line 2: CORE 'zero' is not a whole number"),
        ("# CPU,Core,Socket,Node\n70000,0,0,0\n", "line 2: CPU '70000' is not a whole number up to 65535"),
        ("# CPU,Core,Socket,Node\n0,0,0,65536\n", "NUMA node 65536 is outside 0 to 65535"),
        ("# CPU,Socket\n0,0\n", "line 2: has no CORE number; use lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"),
        ("# CPU,Core,Socket,Node\n", "lists no online CPU; use lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"),
        ("# CPU\n0\n1\n", "lists no online CPU; use lscpu -p=CPU,CORE,SOCKET,NODE,CACHE"),
        ("# CPU,Core\n" + "0,0\n" * 70_000, "has more than 65536 rows"),
        ("# CPU,Core\n" + "," * 17 * 2**20, "is text of more than 16 MB"),
        ("0,0,0,0\n", "line 1: has no header line such as '# CPU,Core,Socket,Node'"),
        (listed(ROW | {"core": "x"}), "cpus.0: CORE 'x' is not a whole number"),
        (listed(ROW)[:-20], "line 9, column"),
        ('{"cpus": [{"cpu": "0", "socket": "0"}]}', "cpus.0: has no CORE number"),
        ('{"cpus": [{"cpu": "0", "core": "0"}, 7]}', "cpus.1: is not an object"),
    ],
    ids=short,
)
def test_broken_output_is_one_clear_error(text: str, message: str):
    with pytest.raises(BadInputError) as error:
        read_text(text)
    assert str(error.value).startswith(message)


def test_text_after_a_table_is_an_error_with_its_line():
    with pytest.raises(BadInputError, match="line 9: has 1 columns"):
        read_lscpu_table(PARSABLE + "rubbish\n")


SUMMARY = {
    "Architecture": "aarch64",
    "CPU(s)": "5",
    "On-line CPU(s) list": "0-3",
    "Thread(s) per core": "1",
    "Core(s) per socket": "2",
    "Socket(s)": "2",
    "L2 cache": "4 MiB (4 instances)",
    "L3 cache": "64 MiB (2 instances)",
    "NUMA node(s)": "3",
    "NUMA node0 CPU(s)": "0,2",
    "NUMA node1 CPU(s)": "1,3-4",
    "NUMA node8 CPU(s)": "",
}


def plain(fields: dict[str, str]) -> str:
    return "".join(f"{name + ':':<25}{value}\n" for name, value in fields.items())


def flat(fields: dict[str, str]) -> str:
    items = [{"field": f"{name}:", "data": value or None} for name, value in fields.items()]
    return json.dumps({"lscpu": items})


def nested(fields: dict[str, str]) -> str:
    root: list[dict[str, object]] = []
    for name, value in fields.items():
        root = [{"field": f"{name}:", "data": value or None, "children": root}]
    return json.dumps({"lscpu": root})


@pytest.mark.parametrize("form", [plain, flat, nested])
def test_a_summary_that_leaves_nothing_open_is_read(form):
    topology: Topology = read_text(form(SUMMARY))
    assert domains(topology, "core") == ["0", "1", "2", "3"]
    assert domains(topology, "socket") == domains(topology, "l3") == ["0,2", "1,3"]
    assert numa(topology) == {"0": "0,2", "1": "1,3", "8": ""}


def test_a_summary_with_caches_but_no_l3_has_none():
    fields = {name: value for name, value in SUMMARY.items() if name != "L3 cache"}
    assert domains(read_text(plain(fields)), "l3") == []


@pytest.mark.parametrize(
    ("change", "question"),
    [
        ({"Thread(s) per core": "2"}, "which CPUs are siblings of one core"),
        ({"Socket(s)": "4"}, "which CPUs each of its 4 sockets holds"),
        ({"Socket(s)": "-"}, "how many sockets there are"),
        ({"L3 cache": "64 MiB (4 instances)"}, "which CPUs each of its 4 L3s holds"),
        ({"L3 cache": "64 MiB"}, "how many L3s there are"),
        ({"NUMA node0 CPU(s)": "0"}, "which CPUs each of its 2 sockets holds"),
        ({"NUMA node0 CPU(s)": "0-2"}, "which CPUs each of its 2 sockets holds"),
    ],
)
def test_a_summary_that_leaves_something_open_is_refused_with_the_way_out(change: dict[str, str], question: str):
    with pytest.raises(BadInputError) as error:
        read_text(flat(SUMMARY | change))
    assert error.value.reason == f"does not say {question}; use lscpu -p, lscpu -J -e or the /sys directory"


def test_a_summary_without_online_cpus_or_with_a_broken_list_is_refused():
    with pytest.raises(BadInputError, match="has no 'On-line CPU"):
        read_text(flat({"Architecture": "x86_64"}))
    with pytest.raises(BadInputError, match=r"NUMA node0 CPU\(s\): 'x' is not a CPU number"):
        read_text(flat(SUMMARY | {"NUMA node0 CPU(s)": "x"}))
