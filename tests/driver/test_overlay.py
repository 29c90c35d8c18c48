"""``/sys`` with an overlay, read as the driver reads it."""

import pytest

from driver.overlay import lay, read_overlay
from driver.watch import isolated, online_now
from models import BadInputError
from topologies.readers.sysfs import read_sysfs

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


@pytest.fixture
def base(tmp_path):
    """A machine of one NUMA node, with two cores of two CPUs."""
    files = {"cpu/online": "0-3", "cpu/isolated": "", "node/node0/cpulist": "0-3", "node/node0/distance": "10"}
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        topology = f"cpu/cpu{cpu}/topology"
        files |= {f"{topology}/physical_package_id": "0", f"{topology}/core_id": str(cpu // 2)}
        files |= {f"{topology}/core_cpus_list": siblings, f"cpu/cpu{cpu}/node0": ""}
    for name, text in files.items():
        path = tmp_path / "base/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return tmp_path / "base"


@pytest.fixture
def overlaid(tmp_path, base):
    """The tree for overlay texts by path."""

    def build(texts):
        file = tmp_path / "overlay.yaml"
        file.write_text("\n".join(f'{path}: "{text}\\n"' for path, text in texts.items()))
        into = tmp_path / "into"
        into.mkdir()
        return lay(read_overlay(file), base, into)

    return build


@pytest.mark.parametrize("path", [CPU, f"{CPU}/online/x", f"{CPU}/{'x' * 256}"], ids=["folder", "file", "long"])
def test_a_path_that_cannot_be_there_is_named(overlaid, path):
    with pytest.raises(BadInputError, match="cannot be in this tree") as bad:
        overlaid({path: "0"})
    assert bad.value.place == path


def test_files_that_the_overlay_does_not_name_read_as_in_the_base(overlaid, base):
    tree = overlaid({f"{CPU}/isolated": "3"})
    assert read_sysfs(tree) == read_sysfs(base)
    assert isolated(tree) == {3}


def test_the_base_is_followed_while_it_changes(overlaid, base):
    tree = overlaid({f"{CPU}/isolated": "3"})
    (base / "devices/system/cpu/online").write_text("0-2\n")
    assert online_now(tree) == {0, 1, 2}


def test_nodes_and_sockets_can_be_made_up(overlaid):
    texts = {f"{NODE}/node0/cpulist": "0-1", f"{NODE}/node1/cpulist": "2-3"}
    for cpu in (2, 3):
        texts |= {f"{CPU}/cpu{cpu}/node1": "", f"{CPU}/cpu{cpu}/topology/physical_package_id": "1"}
    tree = overlaid(texts)
    assert [(cpu.numa, cpu.socket) for cpu in read_sysfs(tree).cpus] == [(0, 0), (0, 0), (1, 1), (1, 1)]
    assert not (tree / "devices/system/cpu/cpu2/node0").exists()


def test_cpus_can_be_added(overlaid):
    texts = {f"{CPU}/online": "0-5"}
    for cpu in (4, 5):
        texts |= {f"{CPU}/cpu{cpu}/topology/physical_package_id": "0", f"{CPU}/cpu{cpu}/topology/core_id": "2"}
    machine = read_sysfs(overlaid(texts))
    assert machine.online == frozenset(range(6))
    assert machine.cpus[4].core == machine.cpus[5].core != machine.cpus[3].core


def test_core_ids_move_siblings_unless_their_lists_are_given(overlaid):
    texts = {f"{CPU}/cpu{cpu}/topology/core_id": str(cpu) for cpu in range(4)}
    texts |= {f"{CPU}/cpu{cpu}/topology/core_cpus_list": "2-3" for cpu in (2, 3)}
    cores = [cpu.core for cpu in read_sysfs(overlaid(texts)).cpus]
    assert cores[0] != cores[1]
    assert cores[2] == cores[3]


def test_the_base_is_never_written_to(overlaid, base):
    before = {path: path.read_text() for path in base.rglob("*") if path.is_file()}
    overlaid({f"{CPU}/online": "0-1", f"{CPU}/cpu0/node1": "", f"{CPU}/cpu0/topology/core_id": "7"})
    assert {path: path.read_text() for path in base.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/etc/passwd: x", "/etc/passwd: is not a path below /sys"),
        ("/sys/../etc/passwd: x", "is not a plain path"),
        ("/sys//kernel: x", "is not a plain path"),
        ("/sys/: x", "is not a plain path"),
        ("/sys/a: 3", "/sys/a: must be a text, in quotes"),
        ("/sys/a: x\n/sys/a/b: y", "/sys/a: is both a file and a folder"),
        ("3: x", "3: is not a path below /sys"),
        ("- /sys/a", "is not a mapping of paths below /sys to texts"),
        ("/sys/a: x\n/sys/a: y", "a key is given twice"),
    ],
)
def test_what_is_no_overlay_is_refused(tmp_path, text, says):
    file = tmp_path / "overlay.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError) as error:
        read_overlay(file)
    assert str(error.value).startswith(str(file))
    assert says in str(error.value)
