import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from models import BadInputError, Topology, format_cpuset, parse_cpuset
from models.schema import PATH
from topologies import catalog
from topologies.catalog.specs import SPECS, build
from topologies.graph import Machine
from topologies.shape import Shape

SCHEMA = Draft202012Validator(json.loads(PATH.read_text(encoding="utf-8")))
FOLDER = Path(catalog.__file__).parent
SHAPE = re.compile(r"(\d+)s(\d+)n-(\d+)c(\d+)t-(.+)")

# model: siblings of a core, cores in an L3 (0: no L3), as the makers state them
MODELS = {
    "epyc-7742": (2, 4),
    "epyc-7702p": (2, 4),
    "epyc-7763": (2, 8),
    "epyc-7713p": (2, 8),
    "epyc-7543": (2, 4),
    "epyc-9654": (2, 8),
    "epyc-9454p": (2, 6),
    "epyc-8434p": (2, 6),
    "epyc-9754": (2, 8),
    "epyc-9755": (2, 8),
    "epyc-9965": (2, 16),
    "xeon-8280": (2, 28),
    "xeon-8280l": (2, 28),
    "xeon-6230": (2, 20),
    "xeon-6338n": (2, 32),
    "xeon-8380": (2, 40),
    "xeon-6433n": (2, 32),
    "xeon-8480": (2, 56),
    "xeon-6980p": (2, 128),
    "xeon-6787p": (2, 86),
    "xeon-6780e": (1, 144),
    "xeon-8490h": (2, 60),
    "altra-q80-30": (1, 0),
    "graviton3": (1, 64),
    "graviton4": (1, 96),
    "kunpeng-920-6426": (1, 32),
    "grace": (1, 72),
    "power9": (4, 2),
    "power10": (8, 1),
    "ryzen-7840u": (2, 8),
    "ryzen-9950x": (2, 8),
    "threadripper-7980x": (2, 8),
    "threadripper-3960x": (2, 3),
}

# CPUs of one NUMA node as published for that machine
PUBLISHED = {
    "2s8n-128c256t-epyc-7742-nps4-dgx-a100": {3: "48-63,176-191", 5: "80-95,208-223"},
    "1s8n-48c96t-epyc-8434p-l3-as-numa": {0: "0-5,48-53", 7: "42-47,90-95"},
    "2s8n-112c224t-xeon-8480-snc4": {1: "14-27,126-139"},
    "1s4n-24c48t-threadripper-3960x-nps4": {2: "12-17,36-41"},
    "1s1n-72c72t-grace-gh200": {0: "0-71", 8: ""},
    "2s2n-144c144t-grace-gb200": {1: "72-143", 2: "", 26: ""},
    "2s2n-44c176t-power9-ac922": {0: "0-87", 8: "88-175", 255: ""},
    "2s2n-40c80t-xeon-6230-interleaved": {1: format_cpuset(range(1, 80, 2))},
}


def numa_cpus(topology: Topology) -> dict[int, str]:
    cpus = defaultdict(set, {node.id: set() for node in topology.numa_nodes})
    for cpu in topology.cpus:
        cpus[cpu.numa].add(cpu.cpu)
    return {node: format_cpuset(found) for node, found in cpus.items()}


def model_of(name: str) -> str | None:
    found = [model for model in MODELS if re.search(rf"-{re.escape(model)}(-|$)", name)]
    return found[0] if found else None


@pytest.mark.parametrize("name", catalog.names())
def test_the_numbers_in_a_name_are_those_of_the_document(name: str) -> None:
    topology = catalog.read(name)
    sockets, numa_nodes, cores, cpus, _ = SHAPE.fullmatch(name).groups()
    shape = Shape.of(topology)
    assert topology.name == name
    assert (shape.sockets, shape.numa_nodes) == (int(sockets), int(numa_nodes))
    assert (shape.cores, shape.cpus) == (int(cores), int(cpus))
    assert topology.online == frozenset(range(shape.cpus))


@pytest.mark.parametrize("name", [name for name in catalog.names() if model_of(name)])
def test_siblings_and_l3s_are_as_the_maker_states_them(name: str) -> None:
    topology = catalog.read(name)
    siblings, cores_per_l3 = MODELS[model_of(name)]
    assert set(Counter(cpu.core for cpu in topology.cpus).values()) == {siblings}
    l3s = Counter(l3 for l3, _ in {(cpu.l3, cpu.core) for cpu in topology.cpus if cpu.l3 is not None})
    assert set(l3s.values()) == ({cores_per_l3} if cores_per_l3 else set())


def test_each_model_of_the_table_is_in_the_catalog() -> None:
    assert {model_of(name) for name in catalog.names()} - {None} == set(MODELS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_numa_nodes_hold_the_cpus_that_were_published(name: str) -> None:
    cpus = numa_cpus(catalog.read(name))
    assert {node: cpus[node] for node in PUBLISHED[name]} == PUBLISHED[name]


def test_a_hybrid_desktop_has_8_cores_of_two_cpus_and_12_of_one() -> None:
    topology = catalog.read("1s1n-20c28t-core-i7-14700")
    kinds = Counter(cpu.core_type for cpu in topology.cpus)
    siblings = Counter(cpu.core for cpu in topology.cpus)
    assert kinds == {"performance": 16, "efficiency": 12}
    assert Counter(siblings.values()) == {2: 8, 1: 12}
    assert {cpu.cpu for cpu in topology.cpus if cpu.core == 0} == {0, 1}


def test_low_power_cores_of_a_laptop_lie_outside_the_l3() -> None:
    topology = catalog.read("1s1n-16c22t-core-ultra-7-155h")
    assert [cpu.cpu for cpu in topology.cpus if cpu.l3 is None] == [20, 21]


def test_an_l3_of_a_xeon_lies_over_the_numa_nodes_of_its_socket() -> None:
    topology = catalog.read("2s6n-256c512t-xeon-6980p-snc3")
    over = defaultdict(set)
    for cpu in topology.cpus:
        over[cpu.l3].add(cpu.numa)
    assert over == {0: {0, 1, 2}, 1: {3, 4, 5}}
    cores = Counter(numa for numa, _ in {(cpu.numa, cpu.core) for cpu in topology.cpus})
    assert cores == {0: 43, 1: 43, 2: 42, 3: 43, 4: 43, 5: 42}


def test_a_virtual_machine_has_neither_numa_nor_an_l3() -> None:
    topology = catalog.read("1s1n-4c4t-vm")
    assert topology.numa_nodes == ()
    assert {(cpu.numa, cpu.l3) for cpu in topology.cpus} == {(None, None)}


def test_eight_sockets_are_one_or_two_links_apart() -> None:
    nodes = catalog.read("8s8n-224c448t-xeon-8280l").numa_nodes
    assert [Counter(node.distances.values()) for node in nodes] == [{10: 1, 21: 3, 31: 4}] * 8


@pytest.mark.parametrize("name", catalog.names())
def test_distances_are_symmetric_and_least_at_home(name: str) -> None:
    distances = {node.id: node.distances for node in catalog.read(name).numa_nodes}
    for a, row in distances.items():
        assert row[a] == 10
        assert all(row[b] == distances[b][a] and (a == b or row[b] > 10) for b in row)


def test_devices_are_local_to_the_cpus_of_their_numa_node() -> None:
    found = {}
    for topology in map(catalog.read, catalog.names()):
        cpus = numa_cpus(topology)
        for device in topology.devices:
            assert device.local_cpus == parse_cpuset(cpus[device.numa])
            found[topology.name, device.name] = device.pci
    assert found["2s2n-64c128t-xeon-6338n-telco", "ens6f0"] == "0000:b1:00.0"
    assert len({name for name, _ in found}) >= 4


@pytest.mark.parametrize("name", catalog.names())
def test_every_machine_gives_a_graph_whose_domains_cover_it(name: str) -> None:
    machine = Machine(catalog.read(name))
    for domains in (machine.sockets, machine.numa_nodes, machine.cores):
        assert sum(domain.mask for domain in domains) == machine.online


def test_the_table_of_machines_gives_the_documents_byte_by_byte() -> None:
    made = {spec.name: build(spec).to_json() for spec in SPECS}
    kept = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert made.keys() == kept.keys()
    drifted = [name for name in made if made[name] != kept[name]]
    assert not drifted, "renew them with: python -m topologies.catalog.specs"


@pytest.mark.parametrize("name", catalog.names())
def test_every_document_meets_the_published_schema(name: str) -> None:
    SCHEMA.validate(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def test_the_readme_explains_exactly_the_machines_there_are() -> None:
    rows = re.findall(r"^\| (\S+-\S+) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == catalog.names()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("7763", "nearest: 2s2n-128c256t-epyc-7763-nps1, 2s8n-128c256t-epyc-7763-nps4"),
        ("2s8n-128c256t-epic-7763-nps4", "nearest: 2s8n-128c256t-epyc-7763-nps4"),
        ("../catalog/1s1n-4c4t-vm", "nearest: 1s1n-4c4t-vm"),
        ("no such thing at all", "'cpusat topology list' shows all names"),
        ("", "'cpusat topology list' shows all names"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, reason: str) -> None:
    with pytest.raises(BadInputError) as caught:
        catalog.read(name)
    assert reason in caught.value.reason
    assert caught.value.file == name
