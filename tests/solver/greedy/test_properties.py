"""What holds of every answer, on machines equal and unequal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import CPU, NUMANode, Topology, format_cpuset, from_mask, parse_cpuset, to_mask
from solver.greedy import take_distributed, take_packed
from topologies.graph import Machine
from topologies.synthetic import build

TAKES = {
    "packed": take_packed,
    "packed, spread": lambda *asked: take_packed(*asked, spread=True),
    "packed, whole L3s": lambda *asked: take_packed(*asked, prefer_l3=True),
    "distributed": take_distributed,
    "distributed, in twos": lambda *asked: take_distributed(*asked, group=2),
    "distributed, in fours, spread": lambda *asked: take_distributed(*asked, group=4, spread=True),
}


@st.composite
def topologies(draw):
    """Small machines of any shape; some have CPUs offline, or L3s only in part."""
    levels = draw(st.sampled_from([("socket", "numa"), ("numa", "socket")]))
    counts = [f"{level}:{draw(st.integers(1, 3))}" for level in (*levels, "l3", "core", "cpu")]
    whole = build(" ".join(counts)).cpus
    offline = draw(st.sets(st.integers(1, len(whole) - 1), max_size=len(whole) // 2)) if len(whole) > 1 else set()
    no_l3_from = draw(st.integers(0, 30))
    kept = [cpu for cpu in whole if cpu.cpu not in offline]
    cpus = [cpu.model_copy(update={"l3": cpu.l3 if cpu.core < no_l3_from else None}) for cpu in kept]
    return Topology(cpus=cpus, numa_nodes=[NUMANode(id=i) for i in sorted({cpu.numa for cpu in cpus})])


@st.composite
def asked(draw):
    topology = draw(topologies())
    free = draw(st.sets(st.sampled_from([cpu.cpu for cpu in topology.cpus])))
    return topology, to_mask(free), draw(st.integers(1, len(topology.cpus) + 2))


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())
@settings(max_examples=150)
@given(asked())
def test_the_answer_has_the_size_asked_for_and_is_free_or_too_few_are(take, question):
    topology, free, cpus = question
    taken = take(Machine(topology), free, cpus)
    if free.bit_count() < cpus:
        assert taken is None
    else:
        assert taken.bit_count() == cpus
        assert taken & ~free == 0


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())
@settings(max_examples=60)
@given(asked(), st.randoms())
def test_the_order_of_the_document_and_monotone_renaming_change_nothing(take, question, random):
    topology, free, cpus = question
    renamed = [
        cpu.model_copy(update={"socket": cpu.socket * 7 + 3, "core": cpu.core * 2}) for cpu in topology.cpus
    ]
    random.shuffle(renamed)
    other = Machine(Topology(cpus=renamed, numa_nodes=topology.numa_nodes[::-1]))
    assert take(Machine(topology), free, cpus) == take(other, free, cpus)


def test_a_machine_without_numa_is_one_numa_node():
    cpus = [CPU(cpu=n, core=n % 4) for n in range(8)]
    taken = take_distributed(Machine(Topology(cpus=cpus)), to_mask(parse_cpuset("1-7")), 4)
    assert format_cpuset(from_mask(taken)) == "1-2,5-6"


@pytest.mark.parametrize("shape", ["socket:2 numa:16 core:4 cpu:2", "socket:2 numa:32 l3:1 core:4 cpu:2"])
@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())
def test_many_numa_nodes_are_answered(take, shape):
    machine = Machine(build(shape))
    free = machine.online & ~to_mask(range(0, machine.online.bit_length(), 5))
    taken = take(machine, free, free.bit_count() * 3 // 4)
    assert taken.bit_count() == free.bit_count() * 3 // 4
    assert taken & ~free == 0
