"""Captured ``/sys`` trees, each made for one quirk."""

import os
from pathlib import Path

import pytest

from models import BadInputError, Device, Topology, format_cpuset
from tests.topologies.helpers import CPU, NODE, core_types, domains, numa, sysfs_cpu, write_tree
from topologies.readers.sysfs import read_sysfs

SMT2 = sysfs_cpu(0, "0,2") | sysfs_cpu(1, "1,3") | sysfs_cpu(2, "0,2") | sysfs_cpu(3, "1,3")


def machine(root: Path, files: dict[str, str | bytes] | dict[str, str]) -> Topology:
    return read_sysfs(write_tree(root, files))


@pytest.mark.parametrize("inside", ["", "sys", "sys/devices/system/cpu"])
def test_a_tree_is_found_from_its_root_from_sys_and_from_the_cpu_directory(inside: str, tmp_path: Path):
    write_tree(tmp_path, SMT2 | {f"{NODE}/node3/cpulist": "0-3"})
    topology = read_sysfs(tmp_path / inside)
    assert domains(topology, "core") == ["0,2", "1,3"]
    assert numa(topology) == {"3": "0-3"}


def test_cores_come_from_siblings_though_core_ids_repeat(tmp_path: Path):
    files = {}
    for cpu in range(4):
        files |= sysfs_cpu(cpu, str(cpu), topology__core_id="0")
    assert domains(machine(tmp_path, files), "core") == ["0", "1", "2", "3"]


def test_a_core_has_as_many_cpus_as_its_siblings_say_up_to_four_on_smt4(tmp_path: Path):
    files = {}
    for cpu in range(8):
        files |= sysfs_cpu(cpu, "0-3" if cpu < 4 else "4-7")
    assert domains(machine(tmp_path, files), "core") == ["0-3", "4-7"]


def test_masks_serve_where_lists_are_missing(tmp_path: Path):
    files = {}
    for cpu in (0, 1, 32, 33):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = "00000001,00000001" if cpu % 32 == 0 else "2,00000002"
    files[f"{NODE}/node0/cpumap"] = "1,00000001"
    files[f"{NODE}/node1/cpumap"] = "2,00000002"
    topology = machine(tmp_path, files)
    assert domains(topology, "core") == ["0,32", "1,33"]
    assert numa(topology) == {"0": "0,32", "1": "1,33"}


def test_an_offline_cpu_is_left_out_and_its_sibling_is_a_core_alone(tmp_path: Path):
    files = sysfs_cpu(0, "0") | sysfs_cpu(1, "1,3") | sysfs_cpu(3, "1,3") | {f"{CPU}/cpu2/online": "0"}
    topology = machine(tmp_path, files | {f"{CPU}/online": "0-1,3", f"{NODE}/node0/cpulist": "0-3"})
    assert domains(topology, "core") == ["0", "1,3"]
    assert numa(topology) == {"0": "0-1,3"}


def test_without_an_online_list_each_cpu_says_whether_it_is_online(tmp_path: Path):
    files = SMT2 | {f"{CPU}/cpu2/online": "0", f"{CPU}/cpu3/online": "1"}
    assert format_cpuset(machine(tmp_path, files).online) == "0-1,3"


def test_cpus_that_are_listed_online_but_have_no_directory_are_left_out(tmp_path: Path):
    assert format_cpuset(machine(tmp_path, SMT2 | {f"{CPU}/online": "0-223"}).online) == "0-3"


def test_numa_nodes_without_cpus_and_ids_with_gaps_are_kept(tmp_path: Path):
    files = SMT2 | {f"{NODE}/node0/cpulist": "0,2", f"{NODE}/node8/cpulist": "1,3", f"{NODE}/node252/cpulist": ""}
    assert numa(machine(tmp_path, files)) == {"0": "0,2", "8": "1,3", "252": ""}


def test_a_cpu_in_no_numa_node_has_none(tmp_path: Path):
    topology = machine(tmp_path, SMT2 | {f"{NODE}/node1/cpulist": "1,3"})
    assert [cpu.numa for cpu in topology.cpus] == [None, 1, None, 1]


def test_of_overlapping_numa_nodes_the_smallest_holds_the_cpu(tmp_path: Path):
    files = SMT2 | {f"{NODE}/node0/cpulist": "0-3", f"{NODE}/node1/cpulist": "1,3", f"{NODE}/node2/cpulist": "0-3"}
    assert numa(machine(tmp_path, files)) == {"0": "0,2", "1": "1,3", "2": ""}


def test_one_l3_may_span_two_numa_nodes(tmp_path: Path):
    files = sysfs_cpu(0, "0", l3="0-1") | sysfs_cpu(1, "1", l3="0-1")
    topology = machine(tmp_path, files | {f"{NODE}/node{cpu}/cpulist": str(cpu) for cpu in (0, 1)})
    assert domains(topology, "l3") == ["0-1"]
    assert numa(topology) == {"0": "0", "1": "1"}


def test_a_machine_without_numa_and_caches_has_neither(tmp_path: Path):
    topology = machine(tmp_path, {f"{CPU}/cpu{cpu}/topology/core_id": "0" for cpu in (0, 1)})
    assert topology.numa_nodes == ()
    assert [(cpu.core, cpu.numa, cpu.l3, cpu.socket) for cpu in topology.cpus] == [
        (0, None, None, 0),
        (1, None, None, 0),
    ]


def test_an_l2_alone_is_no_last_level_cache(tmp_path: Path):
    assert domains(machine(tmp_path, SMT2), "l3") == []


def test_an_instruction_cache_of_level_three_is_not_taken(tmp_path: Path):
    files = sysfs_cpu(0, "0", l3="0")
    assert domains(machine(tmp_path, files | {f"{CPU}/cpu0/cache/index1/type": "Instruction"}), "l3") == []


def test_the_highest_cache_is_the_last_level(tmp_path: Path):
    files = sysfs_cpu(0, "0", l3="0") | sysfs_cpu(1, "1", l3="1")
    for cpu in (0, 1):
        index = f"{CPU}/cpu{cpu}/cache/index9"
        files |= {f"{index}/level": "4", f"{index}/type": "Unified", f"{index}/shared_cpu_list": "0-1"}
    assert domains(machine(tmp_path, files), "l3") == ["0-1"]


def test_an_empty_mask_of_a_cache_means_that_it_is_private(tmp_path: Path):
    files = {}
    for cpu in (0, 1):
        index = f"{CPU}/cpu{cpu}/cache/index3"
        files |= {f"{index}/level": "3", f"{index}/type": "Unified", f"{index}/shared_cpu_map": "00000000"}
    assert domains(machine(tmp_path, files), "l3") == ["0", "1"]


def test_one_corrupt_mask_does_not_outvote_the_other_cpus(tmp_path: Path):
    files = {}
    for cpu in range(6):
        files |= sysfs_cpu(cpu, str(cpu), l3="0-3" if cpu == 2 else "0,2,4" if cpu % 2 == 0 else "1,3,5")
    assert domains(machine(tmp_path, files), "l3") == ["0,2,4", "1,3,5"]


@pytest.mark.parametrize(("ids", "sockets"), [((36, 8442), ["0", "1"]), ((-1, -1), ["0-1"]), ((0, -1), ["0-1"])])
def test_sockets_follow_ids_or_else_masks(ids: tuple[int, int], sockets: list[str], tmp_path: Path):
    files = {}
    for cpu, socket in enumerate(ids):
        files |= sysfs_cpu(cpu, str(cpu), socket=socket, topology__core_siblings_list="0-1")
    assert domains(machine(tmp_path, files), "socket") == sockets


def test_dies_of_two_sockets_are_told_apart(tmp_path: Path):
    files = {}
    for cpu in range(4):
        files |= sysfs_cpu(cpu, str(cpu), socket=cpu // 2, topology__die_id=str(cpu % 2))
    topology = machine(tmp_path, files)
    assert domains(topology, "die") == ["0", "1", "2", "3"]


def test_siblings_in_two_numa_nodes_are_two_cores(tmp_path: Path):
    files = sysfs_cpu(0, "0-1") | sysfs_cpu(1, "0-1")
    topology = machine(tmp_path, files | {f"{NODE}/node{cpu}/cpulist": str(cpu) for cpu in (0, 1)})
    assert domains(topology, "core") == ["0", "1"]


def test_cpu_numbers_above_1023_are_read(tmp_path: Path):
    files = sysfs_cpu(0, "0,2047", l3="0,2047") | sysfs_cpu(2047, "0,2047", l3="0,2047")
    topology = machine(tmp_path, files | {f"{NODE}/node0/cpulist": "0,2047"})
    assert domains(topology, "core") == domains(topology, "l3") == ["0,2047"]


def test_core_types_come_from_the_lists_of_the_pmus(tmp_path: Path):
    files = SMT2 | {"sys/devices/cpu_core/cpus": "0,2", "sys/devices/cpu_atom/cpus": "1,3"}
    assert core_types(machine(tmp_path, files)) == {"efficiency": "1,3", "performance": "0,2"}


def test_a_pmu_that_covers_all_cpus_makes_a_standard_machine(tmp_path: Path):
    files = SMT2 | {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": ""}
    assert core_types(machine(tmp_path, files)) == {"standard": "0-3"}


@pytest.mark.parametrize("file", ["cpu_capacity", "acpi_cppc__highest_perf"])
def test_core_types_come_from_capacities_with_a_clear_gap(file: str, tmp_path: Path):
    files = {}
    for cpu, capacity in enumerate([718, 731, 997, 1024]):
        files |= sysfs_cpu(cpu, str(cpu), **{file: str(capacity)})
    assert core_types(machine(tmp_path, files)) == {"efficiency": "0-1", "performance": "2-3"}


@pytest.mark.parametrize("capacities", [[1024, 1024, 1024], [196, 201, 231], [0, 0, 0]])
def test_favoured_cores_do_not_make_core_types(capacities: list[int], tmp_path: Path):
    files = {}
    for cpu, capacity in enumerate(capacities):
        files |= sysfs_cpu(cpu, str(cpu), cpu_capacity=str(capacity))
    assert core_types(machine(tmp_path, files)) == {"standard": "0-2"}


def test_a_core_whose_cpus_are_of_two_types_is_standard(tmp_path: Path):
    files = SMT2 | {"sys/devices/cpu_core/cpus": "0-2", "sys/devices/cpu_atom/cpus": "3"}
    topology = machine(tmp_path, files)
    assert core_types(topology) == {"performance": "0,2", "standard": "1,3"}
    assert domains(topology, "core") == ["0,2", "1,3"]


def test_distances_are_read_in_full(tmp_path: Path):
    files = SMT2 | {f"{NODE}/node0/cpulist": "0-3", f"{NODE}/node2/cpulist": ""}
    nodes = machine(
        tmp_path, files | {f"{NODE}/node0/distance": "10 21", f"{NODE}/node2/distance": "21 10"}
    ).numa_nodes
    assert [node.distances for node in nodes] == [{0: 10, 2: 21}, {0: 21, 2: 10}]


@pytest.mark.parametrize("row", ["10", "10 21 21", "10 x", "10 256", "", "10 -1", "10 99999999999"])
def test_a_matrix_with_a_bad_row_is_left_out(row: str, tmp_path: Path):
    files = SMT2 | {f"{NODE}/node0/cpulist": "0-3", f"{NODE}/node1/cpulist": "", f"{NODE}/node0/distance": "10 21"}
    nodes = machine(tmp_path, files | {f"{NODE}/node1/distance": row}).numa_nodes
    assert [node.distances for node in nodes] == [{}, {}]


def pci(address: str, kind: str, **files: str) -> dict[str, str]:
    device = f"sys/devices/pci0000:16/{address}"
    found = {f"{device}/class": kind, f"sys/bus/pci/devices/{address}": f"->../../../devices/pci0000:16/{address}"}
    return found | {f"{device}/{name.replace('__', '/')}": text for name, text in files.items()}


def test_devices_are_read_by_name_with_where_they_are(tmp_path: Path):
    files = SMT2 | {f"{NODE}/node0/cpulist": "0-3"}
    files |= pci("0000:17:00.0", "0x020000", numa_node="0", local_cpulist="0-1,64", net__eth0__mtu="1500")
    files |= pci("0000:18:00.0", "0x030200", numa_node="-1", local_cpulist="0-3")
    files |= pci("0000:19:00.0", "0x060400", numa_node="0", local_cpulist="0-3")
    near = {"pci_root": "pci0000:16"}
    assert machine(tmp_path, files).devices == (
        Device(name="eth0", pci="0000:17:00.0", numa=0, local_cpus=frozenset({0, 1}), **near),
        Device(name="0000:18:00.0", pci="0000:18:00.0", local_cpus=frozenset(range(4)), **near),
    )


def test_a_broken_device_is_left_out_and_an_unknown_numa_node_is_none(tmp_path: Path):
    files = SMT2 | pci("0000:17:00.0", "0x010802", numa_node="7", local_cpulist="0")
    files |= pci("0000:18:00.0", "0x010802", numa_node="0", local_cpulist="rubbish")
    devices = machine(tmp_path, files).devices
    assert [(device.name, device.numa) for device in devices] == [("0000:17:00.0", None)]


def test_nul_bytes_and_blanks_around_a_value_are_dropped(tmp_path: Path):
    files: dict[str, str | bytes] = {
        f"{CPU}/cpu{cpu}/topology/thread_siblings_list": b" 0-1 \n\0" for cpu in (0, 1)
    }
    assert domains(machine(tmp_path, files), "core") == ["0-1"]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        (f"{CPU}/online", "all of them", "'all of them' is not a CPU number or a range such as 0-3"),
        (f"{CPU}/online", "0-99999", "CPU 99999 is above the highest number allowed, 65535"),
        (f"{CPU}/cpu0/topology/thread_siblings_list", "3-1", "range '3-1' runs backwards"),
        (f"{NODE}/node0/cpumap", "xyz", "'xyz' is not a CPU mask such as 0000000f"),
        (f"{NODE}/node0/cpumap", ",".join(["0"] * 3000), "is not a CPU mask such as 0000000f"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_with_its_path(file: str, text: str, reason: str, tmp_path: Path):
    with pytest.raises(BadInputError) as error:
        machine(tmp_path, SMT2 | {file: text})
    assert error.value.reason.endswith(reason)
    assert error.value.file == str(tmp_path / file)


def test_a_directory_without_a_tree_says_where_it_looked(tmp_path: Path):
    with pytest.raises(
        BadInputError, match=r"holds no sysfs tree: looked for cpu0, cpu1, … in sys/devices/system/cpu"
    ):
        read_sysfs(tmp_path)


def test_a_machine_whose_cpus_are_all_offline_is_refused(tmp_path: Path):
    with pytest.raises(BadInputError, match="lists no online CPU"):
        machine(tmp_path, SMT2 | {f"{CPU}/online": "7"})


def test_a_cpu_number_out_of_bounds_is_refused(tmp_path: Path):
    with pytest.raises(BadInputError, match="cpu70000 is above the highest number allowed"):
        machine(tmp_path, sysfs_cpu(70000, "70000"))


def test_pipes_and_links_into_nowhere_in_a_tree_do_not_block_it(tmp_path: Path):
    write_tree(tmp_path, SMT2 | {f"{NODE}/node0/cpulist": "->/nowhere/at/all"})
    os.mkfifo(tmp_path / CPU / "online")
    assert format_cpuset(read_sysfs(tmp_path).online) == "0-3"
