"""Every recorded machine, against the answers that lie beside it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from models import BadInputError, Topology, format_cpuset
from tests.shared import SHARED, needs_shared
from tests.topologies.helpers import domains, numa
from topologies.load import load
from topologies.readers.kubelet import read_cpu_manager_state

pytestmark = needs_shared

RECORDED = SHARED / "topologies"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((RECORDED / "expected.json").read_text()) if (RECORDED / "expected.json").exists() else {}
)

CHOSEN: dict[str, dict[str, Any]] = {
    # Overlapping NUMA nodes: a CPU lies in the smallest that holds it (lscpu's answer).
    "sysfs/fake-overlapping-nodes": {
        "numa": {"0": "0-3", "1": "8-11", "2": "", "3": "20-23", "4": "16-19", "5": "12-15"}
    },
    # No package ids and no sibling masks of packages: the machine is one socket.
    "sysfs/ppc-ps3": {"n_sockets": 1},
    # High-bandwidth memory has no CPUs of its own (the answer of the XML's objects).
    "xml/v1-knl7250-snc4-flat.xml": {
        "numa": {
            "0": "0-17,68-85,136-153,204-221",
            "1": "18-35,86-103,154-171,222-239",
            "2": "36-51,104-119,172-187,240-255",
            "3": "52-67,120-135,188-203,256-271",
            **dict.fromkeys("4567", ""),
        }
    },
    # No NUMA node in the file: none is invented.
    "xml/v1-no-nodesets.xml": {"numa": {}},
    "xml/v1-offline-pus.xml": {"numa": {}},
    # Nodes 1 and 3 have CPUs but no memory: they are kept.
    "xml/v1-threadripper-2990wx.xml": {
        "numa": {"0": "0-7,32-39", "1": "16-23,48-55", "2": "8-15,40-47", "3": "24-31,56-63"}
    },
}
"""Where the answers disagree and ours is not the headline one: which we give, and why."""

REFUSED = {
    "xml/broken-truncated.xml": "line 12, column 6: is not valid XML",
    "xml/v1-two-machines-malformed.xml": "describes 4 machines",
    # Core numbers of lscpu -y repeat, and no cache tells the cores apart.
    "lscpu/ul-rv64-milkvpioneer.p-y": "core numbers repeat",
    # Summaries that do not determine the machine; each names the way out.
    "lscpu/gen-arm-dgx-spark-gb10.J": "which CPUs each of its 2 L3s holds; use lscpu -p",
    "lscpu/gen-intel-clx-2s-snc2-2lm.J": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/gen-intel-offline-cpu0-node0.J": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/gen-ppc-power9-gpu-numa.J": "which CPUs each of its 4 L3s holds; use lscpu -p",
    "lscpu/epyc9654-2s-l3-as-numa-24nodes.txt": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/phytium2500-2s-16nodes.txt": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/ul-arm-A510-A710-A715-X3.txt": "how many sockets there are; use lscpu -p",
    "lscpu/ul-s390-lpar-drawer.txt": "how many sockets there are; use lscpu -p",
    "lscpu/ul-s390-lpar.txt": "how many sockets there are; use lscpu -p",
    "lscpu/ul-vmware_fpe.txt": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/ul-x86_64-epyc_7451.txt": "which CPUs each of its 2 sockets holds; use lscpu -p",
    "lscpu/xeon8260-8s-snc2-16nodes.txt": "which CPUs each of its 8 sockets holds; use lscpu -p",
    "lscpu/xeon8481c-gcp-2s-4numa.txt": "which CPUs each of its 2 sockets holds; use lscpu -p",
}
"""Files that are refused, and what the error says."""

LSCPU_CORES = {
    # Core numbers restart with each CPU model; caches tell the cores apart.
    "lscpu/gen-arm-dgx-spark-gb10.p": 20,
    "lscpu/ul-arm-A510-A710-A715-X3.p": 8,
    # Core numbers of -y restart with each socket.
    "lscpu/ul-x86_64-64cpu.p-y": 32,
}
"""Tables whose core numbers are fewer than the cores."""


def names(*kinds: str) -> list[str]:
    return [name for name in EXPECTED if name.startswith(kinds)]


def unpack(name: str, directory: Path) -> Path:
    """Restore a packed tree; links are made as recorded, files are never written through them."""
    with gzip.open(RECORDED / "packed" / (Path(name).name.removesuffix(".json.gz") + ".json.gz")) as stream:
        tree = json.load(stream)
    for inside in tree["dirs"]:
        (directory / inside).mkdir(parents=True, exist_ok=True)
    for inside, text in tree["files"].items():
        path = directory / inside
        assert path.resolve().is_relative_to(directory.resolve())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    for inside, target in tree["links"].items():
        path = directory / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return directory


def answers(topology: Topology) -> dict[str, Any]:
    return {
        "cpus_online": format_cpuset(topology.online),
        "n_cores": len(domains(topology, "core")),
        "n_sockets": len(domains(topology, "socket")),
        "numa": numa(topology),
        "l3": sorted(domains(topology, "l3")),
    }


def expected(name: str) -> dict[str, Any]:
    """The recorded answers. Of NUMA nodes with the same CPUs (hwloc's locality) the lowest has them."""
    entry = EXPECTED[name]
    wanted = {key: entry[key] for key in ("cpus_online", "n_cores", "n_sockets", "numa")}
    for same in entry.get("numa_same_cpuset", []):
        _, *others = sorted(same, key=int)
        wanted["numa"] = wanted["numa"] | dict.fromkeys(others, "")
    return wanted | {"l3": sorted(entry["l3"])} | CHOSEN.get(name, {})


@pytest.mark.parametrize("name", names("sysfs/", "packed/"))
def test_a_recorded_sysfs_tree_is_read_as_its_answers_say(name: str, tmp_path: Path):
    assert answers(load(str(unpack(name, tmp_path)))) == expected(name)


@pytest.mark.parametrize("name", [name for name in names("xml/") if name not in REFUSED])
def test_a_recorded_xml_file_is_read_as_its_answers_say(name: str):
    assert answers(load(str(RECORDED / name))) == expected(name)


@pytest.mark.parametrize("name", [name for name in names("lscpu/") if name not in REFUSED])
def test_recorded_lscpu_output_is_read_as_its_answers_say(name: str):
    wanted = dict(EXPECTED[name]["expect"])
    if "n_core_socket_pairs" in wanted:
        wanted["n_cores"] = LSCPU_CORES.get(name, wanted["n_core_socket_pairs"])
        wanted["n_sockets"] = wanted["n_socket_ids"]
    if "cores_per_socket" in wanted:
        wanted["n_cores"] = wanted["cores_per_socket"] * wanted["sockets"]
        wanted["n_sockets"] = wanted["sockets"]
    given = answers(load(str(RECORDED / name)))
    checked = [key for key in given if key in wanted]
    assert {"cpus_online", "n_cores", "n_sockets", "numa"} <= set(checked)
    assert {key: given[key] for key in checked} == {
        key: sorted(wanted[key]) if key == "l3" else wanted[key] for key in checked
    }


@pytest.mark.parametrize("name", REFUSED)
def test_a_recorded_file_that_does_not_determine_a_machine_is_refused(name: str):
    with pytest.raises(BadInputError) as error:
        load(str(RECORDED / name))
    assert REFUSED[name] in str(error.value)
    assert error.value.file == str(RECORDED / name)
    assert "\n" not in str(error.value)


def test_each_recorded_file_that_must_be_refused_is():
    assert {name for name in names("xml/", "lscpu/") if EXPECTED[name].get("expect_error")} <= REFUSED.keys()


@pytest.mark.parametrize("name", names("k8s/cpu_manager_state"))
def test_a_recorded_cpu_manager_state_is_read_as_its_answers_say(name: str):
    wanted, text = EXPECTED[name]["expect"], (RECORDED / name).read_text()
    if wanted.get("error"):
        with pytest.raises(BadInputError, match="JSON"):
            read_cpu_manager_state(text, file=name)
        return
    held, default = read_cpu_manager_state(text, file=name)
    assert format_cpuset(default or ()) == wanted["default"]
    assert (default is None) == (wanted["policy"] == "none")
    assert format_cpuset(frozenset().union(*held.values())) == wanted.get("exclusive", "")


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("sysfs/hybrid-alderlake-cpu_core", ["0-7", "8-15"]),
        ("sysfs/arm-dgx-spark-gb10", ["0-4,10-14", "5-9,15-19"]),
        ("sysfs/arm-dynamiq-a510-a710-a715-x3", ["0-2", "3-7"]),
        ("sysfs/hybrid-lakefield-5cpu", ["0-3", "4"]),
        ("sysfs/arm-kunpeng920-2s4n-cluster", ["0-127"]),
        ("sysfs/hybrid-i7-1270P", ["0-15"]),
    ],
)
def test_core_types_of_recorded_machines_follow_their_lists_and_capacities(
    name: str, types: list[str], tmp_path: Path
):
    assert domains(load(str(unpack(name, tmp_path))), "core_type") == types


def test_distances_of_the_recorded_itanium_are_read_in_full(tmp_path: Path):
    nodes = load(str(unpack("sysfs/ia64-altix-256", tmp_path))).numa_nodes
    assert all(node.distances[node.id] == 10 and len(node.distances) == 64 for node in nodes)
