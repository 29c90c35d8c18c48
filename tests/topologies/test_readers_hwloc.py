"""hwloc XML of all versions, each document made for one quirk."""

import pytest

from models import BadInputError, Device, Topology
from tests.topologies.helpers import core_types, domains, numa, short
from topologies.readers.hwloc import read_hwloc

DOCTYPE = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'


def document(
    inside: str, beside: str = "", *, machine: str = 'cpuset="0xf"', version: str = 'version="2.0"'
) -> str:
    root = f'<object type="Machine" os_index="0" {machine}>{inside}</object>'
    return f"{DOCTYPE}<topology {version}>{root}{beside}</topology>"


def wrap(kind: str, inside: str, **attributes: str) -> str:
    return f'<object type="{kind}" {" ".join(f"{k}={v!r}" for k, v in attributes.items())}>{inside}</object>'


def pus(*cpus: int) -> str:
    return "".join(wrap("PU", "", os_index=str(cpu), cpuset=hex(1 << cpu)) for cpu in cpus)


def core(*cpus: int) -> str:
    return wrap("Core", pus(*cpus), os_index="0")


def read(inside: str, beside: str = "", **more: str) -> Topology:
    return read_hwloc(document(inside, beside, **more))


TWO_SOCKETS = wrap("Package", core(0, 2)) + wrap("Package", core(1, 3))


def test_cores_and_sockets_are_those_around_the_pus():
    topology = read(TWO_SOCKETS)
    assert domains(topology, "core") == domains(topology, "socket") == ["0,2", "1,3"]
    assert numa(topology) == {}


@pytest.mark.parametrize("version", ['version="2.0"', 'version="3.0"'])
def test_numa_nodes_name_their_cpus_since_version_two(version: str):
    nodes = wrap("NUMANode", "", os_index="0", cpuset="0x5") + wrap("NUMANode", "", os_index="3", cpuset="0xa")
    assert numa(read(nodes + TWO_SOCKETS, version=version)) == {"0": "0,2", "3": "1,3"}


def test_version_one_has_sockets_caches_with_depth_and_numa_nodes_around_their_cores():
    def node(number: int, *cpus: int) -> str:
        cache = wrap("Cache", core(*cpus), depth="3", cache_type="0")
        return wrap("NUMANode", wrap("Socket", cache), os_index=str(number))

    topology = read(node(1, 0, 2) + node(0, 1, 3), version="")
    assert numa(topology) == {"0": "1,3", "1": "0,2"}
    assert domains(topology, "l3") == domains(topology, "socket") == ["0,2", "1,3"]


def test_pus_without_core_and_package_are_cores_of_one_socket():
    topology = read(pus(0, 1))
    assert domains(topology, "core") == ["0", "1"]
    assert domains(topology, "socket") == ["0-1"]


def test_cpus_outside_the_l3_have_none():
    topology = read(wrap("L3Cache", core(0) + core(1)) + core(2))
    assert domains(topology, "l3") == ["0-1"]


def test_a_memory_side_cache_is_no_last_level_cache():
    topology = read(wrap("MemCache", wrap("NUMANode", "", os_index="0", cpuset="0x1"), depth="1") + core(0))
    assert domains(topology, "l3") == []
    assert numa(topology) == {"0": "0"}


def test_numa_nodes_of_the_same_cpus_leave_them_to_the_lowest():
    nodes = "".join(wrap("NUMANode", "", os_index=number, cpuset="0xf") for number in ("4", "1"))
    assert numa(read(nodes + TWO_SOCKETS)) == {"1": "0-3", "4": ""}


def test_an_endless_bitmap_stands_for_all_cpus_above():
    nodes = wrap("NUMANode", "", os_index="0", cpuset="0x3") + wrap(
        "NUMANode", "", os_index="1", cpuset="0xf...fc"
    )
    nodes = nodes.replace("0xf...fc", "0xf...f,0xfffffffc")
    assert numa(read(nodes + core(0) + core(1) + core(2) + core(40))) == {"0": "0-1", "1": "2,40"}


def test_empty_words_of_a_bitmap_are_zero_and_numbers_go_above_1023():
    node = wrap("NUMANode", "", os_index="0", cpuset="0x1" + "," * 63 + "0x1")
    topology = read(node + wrap("Core", wrap("PU", "", os_index="2016") + pus(0, 1)))
    assert numa(topology) == {"0": "0,2016"}


def test_pus_outside_the_online_cpuset_are_offline():
    topology = read(TWO_SOCKETS, machine='cpuset="0xf" online_cpuset="0xe"', version="")
    assert domains(topology, "core") == ["1,3", "2"]


def test_cpus_that_a_cgroup_forbids_are_part_of_the_machine():
    assert domains(read(TWO_SOCKETS, machine='cpuset="0xf" allowed_cpuset="0x1"'), "core") == ["0,2", "1,3"]


def test_dies_are_read():
    assert domains(read(wrap("Die", core(0) + core(1)) + wrap("Die", core(2))), "die") == ["0-1", "2"]


def kind(cpuset: str, **infos: str) -> str:
    inside = "".join(f'<info name="{name}" value="{value}"/>' for name, value in infos.items())
    return f'<cpukind cpuset="{cpuset}">{inside}</cpukind>'


P_AND_E = {"performance": "0,2", "efficiency": "1,3"}


@pytest.mark.parametrize(
    ("kinds", "types"),
    [
        (kind("0x5", CoreType="IntelCore") + kind("0xa", CoreType="IntelAtom"), P_AND_E),
        (kind("0x5", LinuxCapacity="1024") + kind("0xa", LinuxCapacity="400"), P_AND_E),
        (kind("0x5", LinuxCapacity="1024"), {"standard": "0-3"}),
        (kind("0xf", CoreType="IntelCore"), {"standard": "0-3"}),
        (kind("0x5", FrequencyMaxMHz="4000") + kind("0xa", FrequencyMaxMHz="3000"), {"standard": "0-3"}),
        (
            kind("0x1", CoreType="IntelCore") + kind("0xe", CoreType="IntelAtom"),
            {"standard": "0,2", "efficiency": "1,3"},
        ),
    ],
)  # fmt: skip
def test_core_types_come_from_cpu_kinds_that_name_them(kinds: str, types: dict[str, str]):
    assert core_types(read(TWO_SOCKETS, kinds)) == types


NODES = wrap("NUMANode", "", os_index="0", cpuset="0x5") + wrap("NUMANode", "", os_index="1", cpuset="0xa")


def matrix(values: str, indexes: str = "1 0", kind: str = "5", of: str = "NUMANode") -> str:
    head = f'<distances2 type="{of}" nbobjs="2" kind="{kind}" name="NUMALatency" indexing="os">'
    return f'{head}<indexes length="3">{indexes}</indexes><u64values length="9">{values}</u64values></distances2>'


def test_distances_go_by_the_indexes_they_are_given_with():
    nodes = read(NODES + TWO_SOCKETS, matrix("10 21 22 11")).numa_nodes
    assert [node.distances for node in nodes] == [{0: 11, 1: 22}, {0: 21, 1: 10}]


@pytest.mark.parametrize(
    "broken",
    [
        matrix("10 21 22"),
        matrix("10 21 x 10"),
        matrix("10 21 21 300"),
        matrix("10 21 21 10", indexes="0"),
        matrix("10 21 21 10", indexes="0 0"),
        matrix("10 21 21 10", indexes="0 2"),
        matrix("10 21 21 10", kind="9"),
        matrix("10 21 21 10", of="OSDev"),
    ],
)
def test_a_matrix_that_is_broken_or_of_something_else_is_left_out(broken: str):
    assert [node.distances for node in read(NODES + TWO_SOCKETS, broken).numa_nodes] == [{}, {}]


@pytest.mark.parametrize(("depth", "found"), [("1", [{0: 10, 1: 21}, {0: 21, 1: 10}]), ("2", [{}, {}])])
def test_version_one_distances_are_factors_of_a_base(depth: str, found: list[dict[int, int]]):
    values = "".join(f'<latency value="{value}"/>' for value in (1, 2.1, 2.1, 1))
    head = f'<distances nbobjs="2" relative_depth="{depth}" latency_base="10.0">{values}</distances>'
    nodes = wrap("NUMANode", core(0), os_index="0") + wrap("NUMANode", core(1), os_index="1")
    assert [node.distances for node in read(head + nodes, version="").numa_nodes] == found


def test_devices_are_local_to_the_cpus_around_them():
    nic = wrap("PCIDev", wrap("OSDev", "", name="eth0"), pci_busid="0000:17:00.0", pci_type="0200 [8086:1533] 03")
    usb = wrap("PCIDev", "", pci_busid="0000:17:01.0", pci_type="0c03 [8086:1533] 03")
    bridge = wrap("Bridge", nic + usb, bridge_type="0-1", bridge_pci="0000:[16-1f]")
    package = wrap("Package", core(0, 2) + bridge, cpuset="0x5")
    where = {"pci": "0000:17:00.0", "pci_root": "pci0000:16", "numa": 0}
    assert read(NODES + package + core(1, 3)).devices == (
        Device(name="eth0", local_cpus=frozenset({0, 2}), **where),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document(TWO_SOCKETS)[:-30], "line 3, column 4"),
        (document("<object " * 2), "line 3, column"),
        ("<html><body/></html>", "is XML, but not from hwloc: the root element is <html>, not <topology>"),
        ("<topology/>", "is hwloc XML without any object"),
        (document(wrap("Machine", core(0))), "Machine: describes 2 machines; give one file per machine"),
        (document(core(0) + core(0)), "PU 0: os_index 0 is given to two PUs"),
        (document(wrap("PU", "", os_index="70000")), "PU 70000: PU has no os_index from 0 to 65535"),
        (document(wrap("PU", "")), "PU: PU has no os_index"),
        (document(wrap("NUMANode", "", cpuset="0x1") + core(0)), "NUMANode: NUMA node without an os_index"),
        (document(wrap("NUMANode", "", os_index="1", cpuset="5-6") + core(0)), "NUMANode 1: '5-6' is no"),
        (document(wrap("NUMANode", "", os_index="1", cpuset="0x1," * 3000) + core(0)), "NUMANode 1: '0x1,0x1"),
        (document(wrap("NUMANode", "", os_index="99999", cpuset="0x1") + core(0)), "NUMA node 99999 is outside"),
        (document(""), "lists no online CPU"),
        ("<topology>" + "<a/>" * 1_000_001, "XML has more than 1000000 elements"),
        ("<topology>" + "<a>" * 300, "XML is nested deeper than 200 elements"),
    ],
    ids=short,
)  # fmt: skip
def test_a_broken_document_is_one_clear_error(text: str, message: str):
    with pytest.raises(BadInputError) as error:
        read_hwloc(text)
    assert str(error.value).startswith(message)


def test_an_xml_bomb_is_refused_before_it_grows():
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    bomb = f'<!DOCTYPE topology [<!ENTITY l0 "ha">{entities}]><topology><object type="&l11;"/></topology>'
    with pytest.raises(BadInputError, match="XML that defines entities is refused"):
        read_hwloc(bomb)


def test_an_external_entity_is_not_fetched():
    text = '<!DOCTYPE topology [<!ENTITY x SYSTEM "file:///etc/hostname">]><topology>&x;</topology>'
    with pytest.raises(BadInputError, match="XML that defines entities is refused"):
        read_hwloc(text)
