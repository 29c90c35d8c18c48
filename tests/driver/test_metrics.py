"""What Prometheus gets to see."""

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from driver.conditions import Conditions
from driver.gauges import Gauges
from driver.ledger.entry import Entry, Owner, Snapshot
from driver.metrics import Metrics
from driver.node import NodeCPUs
from models import Request, Topology, parse_cpuset
from solver.engine import solve
from topologies.load import load

MACHINE = load("socket:2 numa:2 l3:1 core:4 cpu:2")
"""Four cores a NUMA node: CPUs 0 to 3 and their siblings 16 to 19, 4 to 7 and 20 to 23, and so on."""


def samples(registry):
    """Value by name and label values, without those of the process."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    found = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
        found[f"{sample.name.removeprefix('cpusat_driver_')}{{{labels}}}"] = sample.value
    return found


def of(*entries, reserved="", isolated="", quarantined="", conditions=None):
    machine = Topology.model_validate({**dict(MACHINE), "reserved": reserved})
    node = NodeCPUs.of(machine, parse_cpuset(isolated))
    snapshot = Snapshot(node, {entry.uid: entry for entry in entries}, parse_cpuset(quarantined))
    metrics = Metrics()
    metrics.registry.register(Gauges(machine, lambda: snapshot, conditions or Conditions()))
    return samples(metrics.registry)


def entry(uid, cpuset, policy=None):
    if policy is None:
        return Entry(uid=uid, cpuset=cpuset)
    cpus = parse_cpuset(cpuset)
    request = Request(cpus=len(cpus), policy=policy)
    result = solve(MACHINE, request, free=cpus, engine="greedy")
    return Entry(uid=uid, cpuset=cpuset, allocations=result.allocations, engine="greedy")


def test_what_happens_is_counted():
    metrics = Metrics()
    metrics.prepared("cpsat", 0.02, 8)
    metrics.prepared("cpsat", 3.0, 9)
    metrics.prepared("ledger", 0.001, 9)
    metrics.stage("get", 0.004)
    metrics.stage("settle", 0.06)
    metrics.unprepared()
    metrics.refused("NotPlaceable")
    metrics.solved("greedy", 0.001)
    metrics.fell_back("timeout")
    metrics.repaired(3)
    found = samples(metrics.registry)
    assert found["prepares_total{engine=cpsat}"] == 2
    assert found["prepares_total{engine=ledger}"] == 1
    assert found["prepare_seconds_bucket{engine=cpsat,le=0.025}"] == 1
    assert found["prepare_seconds_sum{engine=cpsat}"] == 3.02
    assert found["prepare_stage_seconds_bucket{le=0.005,stage=get}"] == 1
    assert found["prepare_stage_seconds_bucket{le=0.05,stage=settle}"] == 0
    assert found["prepare_stage_seconds_sum{stage=settle}"] == 0.06
    assert found["unprepares_total{}"] == 1
    assert found["refusals_total{reason=NotPlaceable}"] == 1
    assert found["solver_seconds_count{engine=greedy}"] == 1
    assert found["fallbacks_total{reason=timeout}"] == 1
    assert found["masks_repaired_total{}"] == 3


def test_the_size_of_a_claim_counts_when_it_is_placed_and_not_when_it_is_answered_again():
    metrics = Metrics()
    for engine, cpus in (("cpsat", 8), ("given", 9), ("ledger", 9), ("ledger", 8)):
        metrics.prepared(engine, 0.01, cpus)
    found = samples(metrics.registry)
    assert found["claim_cpus_bucket{le=8.0}"] == 1
    assert found["claim_cpus_bucket{le=16.0}"] == 2
    assert found["claim_cpus_sum{}"] == 17


def test_the_build_and_the_process_are_told():
    found = samples(Metrics().registry)
    assert any(name.startswith("build_info{version=") for name in found)
    assert found["process_resident_memory_bytes{}"] > 2**20


def test_cpus_are_counted_by_what_becomes_of_them():
    found = of(entry("a", "2-5"), entry("b", "8"), reserved="0-1", isolated="30-31", quarantined="16")
    assert {
        name: found[f"cpus_{name}{{}}"] for name in ("allocated", "free", "reserved", "shared", "quarantined")
    } == {
        "allocated": 5,
        "free": 24,
        "reserved": 2,
        "shared": 22,
        "quarantined": 1,
    }


def test_claims_are_counted_by_what_they_span_and_by_policy():
    found = of(
        entry("one node", "0-3", "packed"),
        entry("two sockets for no reason", "5,9", "packed"),
        entry("larger than a node", "10,12-15,26,28-31", "packed"),
        entry("wanted on two", "6,11", "distributed"),
        entry("chosen by others", "7"),
    )
    assert found["claims{numa_nodes=1,policy=packed}"] == 1
    assert found["claims{numa_nodes=2,policy=packed}"] == 2
    assert found["claims{numa_nodes=2,policy=distributed}"] == 1
    assert found["claims{numa_nodes=1,policy=given}"] == 1
    assert found["claims_by_sockets{policy=packed,sockets=2}"] == 1
    assert found["claims_on_fewest_numa_nodes{policy=packed}"] == 2
    assert found["claims_on_fewest_numa_nodes{policy=distributed}"] == 0
    assert found["claims_on_fewest_numa_nodes{policy=given}"] == 1


def test_each_live_claim_says_whose_it_is_and_what_it_has():
    web = Entry(
        **{**dict(entry("uid-1", "2-5", "packed")), "namespace": "default", "name": "web"},
    ).model_copy(update={"pods": frozenset({"pod-1", "pod-2"}), "pod_names": {"pod-1": "web-0", "pod-2": "web-1"}})
    alone = Entry(
        uid="uid-2", namespace="batch", name="job", cpuset="8,12", pods=["pod-3"], pod_names={"pod-3": "j"}
    )
    unnamed = Entry(uid="uid-3", cpuset="20", pods=["pod-4"], adopted=True)
    carried = web.model_copy(update={"owner": Owner(pod_uid="pod-2", container="nginx")})

    def series(*entries):
        return {name for name in of(*entries) if name.startswith("claim_info")}

    first = "claim=web,cpuset=2-5,engine=greedy,namespace=default,numa_nodes=0-1,pod={},policy=packed,uid=uid-1"
    assert series() == set()
    assert series(web, alone, unnamed) == {
        f"claim_info{{{first.format('')}}}",
        "claim_info{claim=job,cpuset=8,12,engine=given,namespace=batch,numa_nodes=2-3,pod=j,policy=given,uid=uid-2}",
        "claim_info{claim=,cpuset=20,engine=adopted,namespace=,numa_nodes=1,pod=pod-4,policy=given,uid=uid-3}",
    }
    assert series(carried) == {f"claim_info{{{first.format('web-1')}}}"}
    assert of(carried)[f"claim_info{{{first.format('web-1')}}}"] == 1


def test_fragmentation_is_what_could_still_be_placed_whole():
    found = of(entry("a", "2,4"), entry("b", "8-11"), entry("c", "24"), reserved="0-1")
    assert found["free_whole_cores{}"] == 16 - len({0, 1, 2, 4, 8, 9, 10, 11})
    assert found["free_whole_numa_nodes{}"] == 1
    assert found["largest_claim_in_numa_node{}"] == 8


def test_a_numa_node_is_whole_without_its_reserved_cpus():
    assert of(reserved="0-1")["free_whole_numa_nodes{}"] == 4
    assert of(reserved="0-3,16-19")["free_whole_numa_nodes{}"] == 3


@pytest.mark.parametrize("held", [False, True])
def test_every_condition_has_a_gauge_and_is_one_while_it_holds(held):
    conditions = Conditions()
    if held:
        conditions.set("NRIAway", "the runtime is being restarted")
    found = of(conditions=conditions)
    assert found["condition{condition=NRIAway}"] == held
    assert found["condition{condition=TopologyChanged}"] == 0


def test_an_empty_machine_and_one_without_numa_have_all_gauges():
    plain = load("core:4 cpu:2").model_copy(update={"numa_nodes": ()})
    plain = plain.model_copy(update={"cpus": tuple(cpu.model_copy(update={"numa": None}) for cpu in plain.cpus)})
    metrics = Metrics()
    snapshot = Snapshot(NodeCPUs.of(plain), {"a": Entry(uid="a", cpuset="0-7")})
    metrics.registry.register(Gauges(plain, lambda: snapshot, Conditions()))
    found = samples(metrics.registry)
    assert found["claims{numa_nodes=1,policy=given}"] == 1
    assert found["largest_claim_in_numa_node{}"] == 0
