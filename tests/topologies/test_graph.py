"""The graph of a machine and what is read off it, on machines whose domains cross as on such whose nest."""

from itertools import combinations, permutations
from random import Random

import networkx as nx
import pytest

from models import BadInputError, Topology, format_cpuset, from_mask, parse_cpuset, to_mask
from tests.shared import SHARED, needs_shared
from tests.solver.machines import KINDS, small_topology
from topologies import catalog, synthetic
from topologies.graph import Machine
from topologies.graph.build import LEVELS, build_graph
from topologies.graph.dot import as_dot
from topologies.graph.symmetry import canonical_form
from topologies.load import load


def document(rows, **more):
    """A machine from rows (CPUs of a core, core, where)."""
    cpus = [{"cpu": cpu, "core": core, **where} for listed, core, where in rows for cpu in parse_cpuset(listed)]
    nodes = sorted({cpu["numa"] for cpu in cpus if cpu.get("numa") is not None})
    return Topology.model_validate({"cpus": cpus, "numa_nodes": [{"id": i} for i in nodes]} | more)


SERVER = synthetic.build("socket:2 numa:2 l3:1 core:2 cpu:2")
"""Core g is CPUs g and g + 8; NUMA node n, with one L3, is cores 2n and 2n + 1."""
CROSSING = document(
    [
        ("6-7", 0, {"socket": 0, "numa": 5, "l3": 0}),
        ("4-5", 1, {"socket": 0, "numa": 2, "l3": 1}),
        ("2-3", 2, {"socket": 1, "numa": 2, "l3": 0}),
        ("0-1", 3, {"socket": 1, "numa": 2, "l3": 1}),
    ]
)
"""NUMA node 2 lies in both sockets, both L3s in both sockets, L3 0 in both NUMA nodes."""
NO_NUMA = document([("0-1", 0, {"socket": 3}), ("2-3", 1, {"socket": 1})])
PARTLY_L3 = document(
    [(str(n), n, {"socket": 0, "numa": n // 3, "l3": 4 if n == 1 else None}) for n in range(6)],
)
"""Only CPU 1 has an L3; 0,2 and 3-5 lie in two NUMA nodes."""
EMPTY_NODES = synthetic.machine(SERVER.cpus, lambda a, b: 10 + abs(a - b), empty_nodes=[9])
"""NUMA node 9 has no CPUs."""

DOMAINS = {
    "a server": (
        SERVER,
        {
            "sockets": "0-3,8-11 | 4-7,12-15",
            "numa_nodes": "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15",
            "l3s": "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15",
            "cores": "0,8 | 1,9 | 2,10 | 3,11 | 4,12 | 5,13 | 6,14 | 7,15",
        },
    ),
    "domains that cross, by lowest CPU": (
        CROSSING,
        {
            "sockets": "0-3 | 4-7",
            "numa_nodes": "0-5 | 6-7",
            "l3s": "0-1,4-5 | 2-3,6-7",
            "cores": "0-1 | 2-3 | 4-5 | 6-7",
        },
    ),
    "no NUMA, no L3": (NO_NUMA, {"sockets": "0-1 | 2-3", "numa_nodes": "0-3", "l3s": "", "cores": "0-1 | 2-3"}),
    "L3s in part": (PARTLY_L3, {"numa_nodes": "0-2 | 3-5", "l3s": "0,2 | 1 | 3-5", "sockets": "0-5"}),
    "NUMA nodes without CPUs": (EMPTY_NODES, {"numa_nodes": "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15"}),
}


@pytest.mark.parametrize(("topology", "levels"), DOMAINS.values(), ids=DOMAINS.keys())
def test_domains_are_ordered_by_their_lowest_cpu(topology, levels):
    machine = Machine(topology)
    assert {level: " | ".join(listed(domain) for domain in getattr(machine, level)) for level in levels} == levels


def listed(domain):
    return format_cpuset(from_mask(domain.mask))


def test_ids_are_kept():
    machine = Machine(CROSSING)
    assert [node.id for node in machine.numa_nodes] == [2, 5]
    assert [socket.id for socket in machine.sockets] == [1, 0]
    assert [core.id for core in machine.cores] == [3, 2, 1, 0]
    assert [node.id for node in Machine(NO_NUMA).numa_nodes] == [None]


def test_homes_are_positions():
    homes = [(home.core, home.numa, home.socket, home.l3) for home in Machine(CROSSING).homes]
    assert homes == [(0, 0, 0, 0), (1, 0, 0, 1), (2, 0, 1, 0), (3, 1, 1, 1)]
    assert {home.l3 for home in Machine(NO_NUMA).homes} == {-1}


DISTANCES = {
    "those of the document, by position": (
        SERVER,
        ((10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10)),
    ),
    "10 and 20 where there are none": (CROSSING, ((10, 20), (20, 10))),
    "one implicit NUMA node": (NO_NUMA, ((10,),)),
    "NUMA nodes without CPUs left out": (
        EMPTY_NODES,
        ((10, 11, 12, 13), (11, 10, 11, 12), (12, 11, 10, 11), (13, 12, 11, 10)),
    ),
    "not the same both ways, in the order of CPUs": (
        document(
            [("1", 0, {"numa": 0}), ("0", 1, {"numa": 1})],
            numa_nodes=[{"id": 0, "distances": {0: 10, 1: 15}}, {"id": 1, "distances": {0: 31, 1: 11}}],
        ),
        ((11, 31), (15, 10)),
    ),
}


@pytest.mark.parametrize(("topology", "distances"), DISTANCES.values(), ids=DISTANCES.keys())
def test_distances_are(topology, distances):
    assert Machine(topology).distances == distances


def test_numa_nodes_without_cpus_are_in_the_graph_and_nowhere_else():
    machine = Machine(EMPTY_NODES)
    assert machine.graph.nodes["numa", 9]["mask"] == 0
    assert machine.graph.edges[("numa", 0), ("numa", 9)]["distance"] == 19
    assert 9 not in [node.id for node in machine.numa_nodes]


def test_core_types_are_kept():
    machine = Machine(document([("0-1", 0, {"core_type": "performance"}), ("2", 1, {"core_type": "efficiency"})]))
    assert [core.core_type for core in machine.cores] == ["performance", "efficiency"]


def containment(graph):
    """The graph without devices, and without the edges that are distances."""
    edges = [(a, b) for a, b, data in graph.edges(data=True) if not data]
    inner = nx.DiGraph(edges)
    inner.add_nodes_from((vertex, data) for vertex, data in graph.nodes(data=True) if vertex[0] != "device")
    return inner


def domains_of(topology):
    """Vertex to CPUs, straight from the document."""
    found = {("machine", topology.name): set(topology.online)}
    has_l3 = any(cpu.l3 is not None for cpu in topology.cpus)
    for cpu in topology.cpus:
        l3 = cpu.l3 if cpu.l3 is not None else f"none in NUMA node {cpu.numa}"
        ids = {"socket": cpu.socket, "numa": cpu.numa, "core": cpu.core, "cpu": cpu.cpu}
        ids |= ({"l3": l3} if has_l3 else {}) | ({} if cpu.die is None else {"die": cpu.die})
        for vertex in ids.items():
            found.setdefault(vertex, set()).add(cpu.cpu)
    return found | {("numa", n.id): set() for n in topology.numa_nodes if ("numa", n.id) not in found}


def check(topology):
    graph = build_graph(topology)
    inside, found = containment(graph), domains_of(topology)
    assert {vertex: set(from_mask(data["mask"])) for vertex, data in inside.nodes(data=True)} == found
    assert nx.is_directed_acyclic_graph(inside)
    for outer, inner in inside.edges:
        assert found[inner] <= found[outer], (outer, inner)
        assert found[outer] > found[inner] or LEVELS.index(outer[0]) < LEVELS.index(inner[0])
    assert nx.transitive_reduction(inside).edges == inside.edges
    for vertex, cpus in found.items():
        below = nx.descendants(inside, vertex) | {vertex}
        assert {n for level, n in below if level == "cpu"} == cpus, vertex
    check_questions(topology, found)
    check_devices(topology, graph)


def check_questions(topology, found):
    """What the machine says of its graph is what the sets of CPUs say."""
    machine = Machine(topology)
    homes = list(machine.homes)
    for inner, outer in permutations(("numa", "socket", "l3"), 2):
        domains = [[set(from_mask(each.mask)) for each in machine.domains(level)] for level in (inner, outer)]
        crossing = tuple(i for i, a in enumerate(domains[0]) if not any(a <= b for b in domains[1]))
        assert machine.crossing(inner, outer) == crossing
        assert machine.nests(inner, outer) == (crossing == ())
        for cores in (range(0, len(homes), 2), range(len(homes) // 2)):
            pairs = {(getattr(homes[i], inner), getattr(homes[i], outer)) for i in cores}
            nests = len(pairs) == len({a for a, _ in pairs}) or not domains[0]
            assert machine.nests(inner, outer, cores) == nests
    for core in machine.cores:
        assert found[core.vertex] <= set.intersection(*(found[parent] for parent in machine.parents(core)))


def check_devices(topology, graph):
    """Edges of a device lead to disjoint domains that make up its local CPUs."""
    for device in topology.devices:
        near = list(graph.successors(("device", device.name)))
        masks = [graph.nodes[vertex]["mask"] for vertex in near]
        assert (
            sum(masks) == to_mask(topology.local_cpus(device.name)) == graph.nodes["device", device.name]["mask"]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_edges_are_containment_and_masks_are_the_documents_on_random_machines(kind):
    for seed in range(25):
        check(small_topology(Random(seed), kind))


@pytest.mark.parametrize("topology", [each for each, _ in DOMAINS.values()], ids=DOMAINS.keys())
def test_edges_are_containment_and_masks_are_the_documents(topology):
    check(topology)


@pytest.mark.parametrize(
    "name", [name for name in catalog.names() if "c64t" in name or "hex" in name or "vm" in name]
)
def test_machines_of_the_catalog_have_sound_graphs(name):
    check(catalog.read(name))


@needs_shared
@pytest.mark.parametrize(
    "file", ["v1-knl7250-snc4-flat", "v1-ia64-cpuless-node", "v1-power9-sierra", "v2-cpukinds", "v3-qemu-dies"]
)
def test_recorded_machines_have_sound_graphs(file):
    topology = load(str(SHARED / "topologies" / "xml" / f"{file}.xml"))
    check(topology)
    assert len(Machine(topology).cores) == len({cpu.core for cpu in topology.cpus})


def test_the_order_of_the_document_does_not_matter():
    shuffled = CROSSING.model_copy(update={"cpus": CROSSING.cpus[::-1], "numa_nodes": CROSSING.numa_nodes[::-1]})
    assert Machine(shuffled).homes == Machine(CROSSING).homes
    assert Machine(shuffled).numa_nodes == Machine(CROSSING).numa_nodes
    assert nx.utils.graphs_equal(build_graph(shuffled), build_graph(CROSSING))


OUTER_L3 = document([(str(n), n, {"numa": n, "l3": n // 2, "socket": 0}) for n in range(4)])
"""Each L3 holds two NUMA nodes."""


def test_an_l3_larger_than_numa_nodes_holds_them():
    machine = Machine(OUTER_L3)
    assert [machine.parents(node) for node in machine.numa_nodes] == [(("l3", 0),)] * 2 + [(("l3", 1),)] * 2
    assert machine.nests("numa", "l3")
    assert machine.crossing("l3", "numa") == (0, 1)


def test_domains_that_cross_have_several_parents():
    machine = Machine(CROSSING)
    assert machine.crossing("numa", "socket") == (0,)
    assert machine.crossing("l3", "numa") == (1,)
    assert set(machine.parents(machine.cores[1])) == {("l3", 0), ("socket", 1)}
    assert machine.parents(machine.sockets[0]) == (("numa", 2),)
    assert machine.parents(machine.cores[3]) == (("numa", 5),)


@pytest.mark.parametrize("kind", KINDS)
def test_numa_nodes_change_places_where_the_coloured_graph_has_such_an_isomorphism(kind):
    for seed in range(60):
        machine, rng = Machine(small_topology(Random(seed), kind)), Random(seed)
        nodes = tuple(range(len(machine.numa_nodes)))
        for colours in (None, {node: rng.choice("ab") for node in nodes}):
            groups = machine.interchangeable(nodes, colours)
            assert sorted(node for group in groups for node in group) == list(nodes)
            together = {pair for group in groups for pair in combinations(group, 2)}
            for a, b in combinations(nodes, 2):
                assert ((a, b) in together) <= is_symmetry(machine, nodes, colours, a, b)


def test_distances_and_colours_decide_what_may_change_places():
    machine = Machine(synthetic.build("socket:2 numa:3 core:1"))
    nodes = tuple(range(6))
    assert machine.interchangeable(nodes) == ((0, 1, 2), (3, 4, 5))
    assert machine.interchangeable(nodes[1:4]) == ((1, 2), (3,))
    assert machine.interchangeable(nodes, dict(enumerate("abaaaa"))) == ((0, 2), (1,), (3, 4, 5))


def is_symmetry(machine, nodes, colours, a, b):
    """Whether exchanging two NUMA nodes is an isomorphism of the distances, says networkx."""
    graph, swapped = nx.Graph(), nx.Graph()
    swap = {a: b, b: a}
    for node in nodes:
        graph.add_node(node, colour=colours and colours[node], is_node=node)
        swapped.add_node(swap.get(node, node), colour=colours and colours[node], is_node=swap.get(node, node))
    for x, y in combinations(nodes, 2):
        graph.add_edge(x, y, far=machine.both_ways(x, y))
        swapped.add_edge(swap.get(x, x), swap.get(y, y), far=machine.both_ways(x, y))
    return nx.utils.graphs_equal(graph, swapped)


PLACES = document(
    [(str(n), n, {"numa": n // 2, "l3": n // 2, "socket": 0}) for n in range(6)],
    devices=[
        {"name": "nic", "numa": 1},
        {"name": "gpu", "numa": 0, "local_cpus": "0,4-5"},
        {"name": "nowhere"},
        {"name": "none", "local_cpus": ""},
    ],
)


@pytest.mark.parametrize(
    ("place", "cpus"), [("nic", "2-3"), ("gpu", "0,4-5"), ("none", ""), ("0", "0-1"), ("1,4", "0-1,4-5")]
)
def test_near_are_the_cpus_that_the_graph_connects(place, cpus):
    assert Machine(PLACES).near(place) == to_mask(parse_cpuset(cpus)) == to_mask(PLACES.local_cpus(place))


def test_a_device_leads_to_the_largest_domains_that_are_local_to_it():
    graph = Machine(PLACES).graph
    assert list(graph.successors(("device", "nic"))) == [("numa", 1)]
    assert set(graph.successors(("device", "gpu"))) == {("numa", 2), ("core", 0)}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "near: device 'nowhere' has neither local_cpus nor numa"),
        ("9", "near: '9' must name CPUs that are online"),
        (
            "eth9",
            "near: 'eth9' is neither a device of this machine (nic, gpu, nowhere, none) nor a CPU list",
        ),
    ],
)
def test_what_cannot_be_near_is_bad_input(place, message):
    with pytest.raises(BadInputError) as caught:
        Machine(PLACES).near(place)
    assert str(caught.value) == message


def test_the_graph_in_graphviz_has_its_domains_and_edges():
    lines = list(as_dot(document([("0-1", 0, {"numa": 0}), ("2", 1, {"numa": 1})], name='a "b"')))
    assert lines[0] == 'digraph "a \\"b\\"" {'
    assert '  "numa 0" [label="NUMA node 0\\nCPUs 0-1"]' in lines
    assert '  "numa 0" -> "core 0"' in lines
    assert not [line for line in lines if '"cpu ' in line]
    assert lines[-1] == "}"
    devices = list(as_dot(PLACES))
    assert '  "device nic" -> "numa 1" [style=dotted]' in devices
    assert '  "device nic" [label="nic\\nCPUs 2-3", shape=ellipse]' in devices
    assert '  "numa 0" -> "numa 1" [label=12, style=dashed, constraint=false]' in list(as_dot(SERVER))


def test_domains_of_the_same_form_are_isomorphic():
    assert canonical_form("aba") == canonical_form("baa") == (("a", 2), ("b", 1))
    assert canonical_form("ab") != canonical_form("aab")
    assert canonical_form([(2, 1), (1, 1)]) == canonical_form([(1, 1), (2, 1)])
