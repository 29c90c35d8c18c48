"""What must change an answer, what must not, and how answers compare."""

import os
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models import CPU, MAX_CPU, NUMANode, Request, Topology, parse_cpuset, to_mask
from solver.counting import can_be_placed
from solver.engine import solve
from solver.problem import Prepared, Problem
from solver.score import Scorer
from solver.verify import verify, violations
from tests.solver.brute_force import can_be_allowed
from tests.solver.machines import joint_case, single_case, some_request
from topologies import catalog
from topologies.graph import Machine

EXAMPLES = int(os.environ.get("CPUSAT_PROPERTY_EXAMPLES", "80"))
LONG = 60.0

seeds = st.integers(0, 10**9)
injections = st.lists(st.integers(0, 65_535), min_size=40, max_size=40, unique=True)

quick = settings(max_examples=EXAMPLES, derandomize=True)


def answer(topology, request, free, **options):
    """Status and CPU set."""
    result = solve(topology, request, free=free, **({"engine": "cpsat", "time_limit": LONG} | options))
    return result.status, result.allocations[0].cpuset if result.allocations else None


def changed(topology, **fields):
    """The same machine with other fields, validated."""
    document = topology.model_dump(by_alias=True)
    return Topology.model_validate(document | fields)


def renamed(topology, names):
    """Cores, sockets, L3s and NUMA nodes under other ids."""
    ids = {level: dict(zip(range(40), names[i:] + names[:i], strict=False)) for i, level in enumerate(LEVELS)}
    cpus = [
        cpu.model_copy(update={level: ids[level].get(getattr(cpu, level)) for level in LEVELS})
        for cpu in topology.cpus
    ]
    numa = ids["numa"]
    nodes = [
        NUMANode(id=numa[node.id], distances={numa[other]: far for other, far in node.distances.items()})
        for node in topology.numa_nodes
    ]
    return changed(topology, cpus=cpus, numa_nodes=nodes), numa


LEVELS = ("core", "socket", "numa", "l3")


def test_a_numa_node_may_have_the_highest_id_that_documents_allow():
    high = MAX_CPU
    machine = Topology(cpus=[CPU(cpu=0, core=0, numa=high)], numa_nodes=[NUMANode(id=high)])
    assert solve(machine, Request(cpus=1)).status == "optimal"


@quick
@given(seeds, injections)
def test_renamed_cores_sockets_l3s_and_numa_nodes_change_nothing(seed, names):
    case = single_case(seed)
    (request,) = case.requests
    topology, numa = renamed(case.topology, names)
    named = None if request.numa_ids is None else frozenset(numa[node] for node in request.numa_ids)
    same = request.model_copy(update={"numa_ids": named})
    assert answer(topology, same, case.free) == answer(case.topology, request, case.free)


@quick
@given(seeds)
def test_the_order_of_the_document_changes_nothing(seed):
    case, rng = single_case(seed), Random(seed)
    cpus, nodes = list(case.topology.cpus), list(case.topology.numa_nodes)
    rng.shuffle(cpus)
    rng.shuffle(nodes)
    shuffled = changed(case.topology, cpus=cpus, numa_nodes=nodes)
    for engine in ("cpsat", "greedy"):
        asked = (case.requests[0], case.free)
        assert answer(shuffled, *asked, engine=engine) == answer(case.topology, *asked, engine=engine)


def renumbered(case, number):
    """Machine, request and free CPUs when CPU n is called ``number[n]``."""
    (request,), topology = case.requests, case.topology

    def mapped(cpus):
        return frozenset(number[cpu] for cpu in cpus)

    fields = {
        "cpus": [cpu.model_copy(update={"cpu": number[cpu.cpu]}) for cpu in topology.cpus],
        "devices": [d.model_copy(update={"local_cpus": mapped(d.local_cpus)}) for d in topology.devices],
        "reserved": mapped(topology.reserved),
    }
    update = {"within": request.within and mapped(request.within)}
    if request.near not in (None, "nic"):
        update["near"] = str(number[int(request.near)])
    return changed(topology, **fields), request.model_copy(update=update), mapped(case.free)


@quick
@given(seeds, st.lists(st.integers(0, 3000), min_size=40, max_size=40, unique=True))
def test_renumbering_the_cpus_in_their_order_maps_the_answer(seed, numbers):
    case = single_case(seed)
    number = dict(zip(sorted(case.topology.online), sorted(numbers), strict=False))
    status, cpuset = answer(case.topology, case.requests[0], case.free)
    assert answer(*renumbered(case, number)) == (status, cpuset and frozenset(number[cpu] for cpu in cpuset))


@quick
@given(seeds, st.permutations(range(40)))
def test_any_other_renumbering_keeps_status_and_metrics(seed, numbers):
    case = single_case(seed)
    number = dict(zip(sorted(case.topology.online), numbers, strict=False))
    topology, request, free = renumbered(case, number)
    ask = {"engine": "cpsat", "time_limit": LONG}
    before = solve(case.topology, case.requests, free=case.free, **ask)
    after = solve(topology, request, free=free, **ask)
    assert (after.status, after.metrics) == (before.status, before.metrics)


@quick
@given(seeds)
def test_a_numa_node_without_cpus_changes_nothing(seed):
    case = single_case(seed)
    more = NUMANode(id=99) if not any(n.distances for n in case.topology.numa_nodes) else far_node(case.topology)
    nodes = [node.model_copy(update={"distances": with_far(node)}) for node in case.topology.numa_nodes]
    assume(all(cpu.numa is not None for cpu in case.topology.cpus))
    topology = changed(case.topology, numa_nodes=[*nodes, more])
    asked = (case.requests[0], case.free)
    assert answer(topology, *asked) == answer(case.topology, *asked)


def far_node(topology):
    return NUMANode(id=99, distances={node.id: 80 for node in topology.numa_nodes} | {99: 10})


def with_far(node):
    return node.distances and node.distances | {99: 80}


@quick
@given(seeds)
def test_a_numa_node_whose_cpus_are_all_taken_changes_nothing(seed):
    """But for ``numa_min: all``, which counts NUMA nodes whose CPUs are held, though not if they are reserved."""
    case = single_case(seed)
    assume(all(cpu.numa is not None for cpu in case.topology.cpus))
    (request,) = case.requests
    first = max(case.topology.online) + 1
    where = {"socket": 99, "numa": 99, "l3": 999 if any(c.l3 is not None for c in case.topology.cpus) else None}
    more = [CPU(cpu=first + n, core=999, **where) for n in range(2)]
    nodes = [node.model_copy(update={"distances": with_far(node)}) for node in case.topology.numa_nodes]
    far = far_node(case.topology) if any(node.distances for node in nodes) else NUMANode(id=99)
    taken = {"cpus": [*case.topology.cpus, *more], "numa_nodes": [*nodes, far]}
    reserved = changed(case.topology, **taken, reserved=case.topology.reserved | {first, first + 1})
    expected = answer(case.topology, request, case.free)
    assert answer(reserved, request, case.free) == expected
    if request.numa_min != "all":
        assert answer(changed(case.topology, **taken), request, case.free) == expected


def test_all_numa_nodes_are_those_with_allocatable_cpus_be_they_held_or_not():
    cpus = [CPU(cpu=n, core=n, numa=n // 2) for n in range(6)]
    machine = Topology(cpus=cpus, numa_nodes=[NUMANode(id=n) for n in range(3)], held={"a": parse_cpuset("4-5")})
    (held,) = solve(machine, Request(cpus=2, numa_min="all")).allocations
    assert held.metrics["floor_shortfall"] == 1
    reserved = machine.model_copy(update={"held": {}, "reserved": parse_cpuset("4-5")})
    (kept,) = solve(reserved, Request(cpus=2, numa_min="all")).allocations
    assert kept.metrics["floor_shortfall"] == 0


@quick
@given(seeds)
def test_the_exact_answer_is_never_worse_than_the_greedy_one(seed):
    case = single_case(seed)
    exact = solve(case.topology, case.requests, free=case.free, engine="cpsat", time_limit=LONG)
    greedy = solve(case.topology, case.requests, free=case.free, engine="greedy")
    if greedy.allocations:
        assert tuple(exact.metrics.values()) <= tuple(greedy.metrics.values())


@quick
@given(seeds)
def test_more_free_cpus_never_make_a_request_infeasible(seed):
    """Not even by even shares of whole cores: a larger core that is free only widens what counts as even."""
    case, rng = single_case(seed), Random(seed)
    fewer = frozenset(cpu for cpu in sorted(case.free) if rng.random() < 0.8)
    assume(answer(case.topology, case.requests[0], fewer)[1] is not None)
    assert answer(case.topology, case.requests[0], case.topology.allocatable)[1] is not None


@quick
@given(seeds, seeds)
def test_seeds_and_workers_change_nothing(seed, other):
    case = single_case(seed)
    asked = (case.topology, case.requests[0], case.free)
    first = answer(*asked, seed=0, workers=1)
    assert answer(*asked, seed=other % 2**31, workers=1) == first
    assert answer(*asked, workers=2) == first


@quick
@given(seeds)
def test_asking_twice_gives_the_same_result(seed):
    case = single_case(seed)
    for engine in ("auto", "cpsat", "greedy"):
        one, two = (
            solve(case.topology, case.requests, free=case.free, engine=engine, time_limit=LONG) for _ in range(2)
        )
        assert without_times(one) == without_times(two)


def without_times(result):
    return result.model_copy(update={"build_ms": 0.0, "solve_ms": 0.0})


@settings(quick, max_examples=EXAMPLES // 2)
@given(seeds, st.sampled_from([0.0, 0.002, 0.004, 0.008]), st.sampled_from(["auto", "cpsat"]))
def test_answers_in_too_short_a_time_are_valid_and_not_called_optimal_unproven(seed, limit, engine):
    case = single_case(seed)
    result = solve(case.topology, case.requests, free=case.free, engine=engine, time_limit=limit)
    proven = answer(case.topology, case.requests[0], case.free)
    if result.status in ("optimal", "infeasible"):
        assert (result.status, result.allocations[0].cpuset if result.allocations else None) == proven
    elif result.status == "feasible":
        masks = [to_mask(each.cpuset) for each in result.allocations]
        verify(Scorer(Machine(case.topology)), to_mask(case.free), case.requests, (), masks, result.metrics)
        best = solve(case.topology, case.requests, free=case.free, engine="cpsat", time_limit=LONG)
        bounds = {name: bound for name, bound in result.bounds.items() if bound is not None}
        first = next(iter(bounds.items()), None)
        assert first is None or first[1] <= best.metrics[first[0]]


@settings(quick, max_examples=EXAMPLES // 2)
@given(seeds, st.sampled_from([0.0, 0.003, 0.006, 0.012]), st.sampled_from(["auto", "cpsat"]))
def test_joint_answers_in_too_short_a_time_are_valid_and_refusals_right(seed, limit, engine):
    case = joint_case(seed)
    ask = {"constraints": case.constraints, "free": case.free, "time_limit": limit}
    result = solve(case.topology, case.requests, engine=engine, **ask)
    masks = [to_mask(each.cpuset) for each in result.allocations]
    if masks:
        verify(
            Scorer(Machine(case.topology)),
            to_mask(case.free),
            case.requests,
            case.constraints,
            masks,
            result.metrics,
        )
    elif result.status == "infeasible":
        assert not can_be_allowed(case.topology, case.free, case.requests, case.constraints)


@pytest.mark.parametrize("engine", ["auto", "cpsat", "greedy"])
def test_a_prepared_machine_answers_like_its_document(engine):
    for case in map(single_case, range(40)):
        prepared, ask = Prepared(case.topology), {"free": case.free, "engine": engine, "time_limit": LONG}
        again = [without_times(solve(prepared, case.requests, **ask)) for _ in range(2)]
        assert again == [without_times(solve(case.topology, case.requests, **ask))] * 2


SERVERS = [
    "1s1n-16c22t-core-ultra-7-155h",
    "1s4n-24c48t-threadripper-3960x-nps4",
    "1s8n-48c96t-epyc-8434p-l3-as-numa",
    "2s2n-44c176t-power9-ac922",
    "2s4n-56c112t-xeon-8280-snc2",
    "8s1n-8c8t-vm-socket-per-cpu",
]


def servers_questions(name, count):
    """A prepared machine of the catalog, and random requests that can be placed on random free CPUs of it."""
    topology, rng = catalog.read(name), Random(name)
    prepared, most = Prepared(topology), max(4, len(topology.cpus) // 4)
    while count:
        share = rng.choice([0.5, 0.8, 1.0])
        free = frozenset(cpu for cpu in sorted(topology.online) if rng.random() < share)
        request = some_request(rng, topology, free, most=most)
        if can_be_placed(Problem.of(prepared, to_mask(free), [request]).demands[0]):
            count -= 1
            yield prepared, request, free


@pytest.mark.parametrize("name", SERVERS)
def test_on_servers_no_exchange_of_cpus_improves_an_optimal_answer(name):
    """Far too many choices to try them all: every exchange of one CPU, and of a core's CPUs for another's."""
    for prepared, request, free in servers_questions(name, 8):
        _, taken = answer(prepared, request, free)
        assert better_neighbour(prepared.scorer, free, request, taken) is None


@pytest.mark.parametrize("name", [*SERVERS, "2s8n-256c512t-epyc-9754-nps4", "2s6n-256c512t-xeon-6980p-snc3"])
def test_on_servers_two_exact_methods_agree(name):
    """``auto`` may settle by tables what ``cpsat`` searches for."""
    for prepared, request, free in servers_questions(name, 12):
        assert answer(prepared, request, free, engine="auto") == answer(prepared, request, free), request


def better_neighbour(scorer, free, request, taken):
    """An allocation that differs by one exchange, keeps all rules and is better; ``None`` if there is none."""
    mask = to_mask(free)

    def key(cpus):
        return tuple(scorer.metrics(mask, request, cpus).values()), scorer.tie_key(cpus)

    best = key(to_mask(taken))
    better = (cpus for cpus in neighbours(scorer, mask, to_mask(taken)) if key(cpus) < best)
    return next((cpus for cpus in better if not any(violations(scorer, mask, [request], (), [cpus]))), None)


def neighbours(scorer, free, taken):
    left = [1 << cpu for cpu in range(free.bit_length()) if free & ~taken & 1 << cpu]
    for bit in (1 << cpu for cpu in range(taken.bit_length()) if taken & 1 << cpu):
        yield from (taken & ~bit | other for other in left)
    for core in (core for core in scorer.cores if (core & taken).bit_count() > 1):
        spare = (other & free & ~taken for other in scorer.cores)
        yield from (taken & ~core | other for other in spare if other.bit_count() == (core & taken).bit_count())
