"""Cases in which greedy wastes a whole NUMA node, made small, as commands to paste."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.instances import prepared
from benchmarks.quality import POLICIES, Judged, best
from models import Metrics, Request, format_cpuset, from_mask

TRIALS = 3
"""Cases that are made small for each machine and policy; the shortest is kept."""

FLAGS = {"full_cores": "--full-cores", "prefer_l3": "--prefer-l3"}


@dataclass(frozen=True)
class Case:
    """A machine, the CPUs that are held, a request, and what greedy and the optimum make of it."""

    machine: str
    held: int
    request: Request
    greedy: Metrics
    optimum: Metrics

    @property
    def command(self) -> str:
        """What to paste into a shell."""
        source = f"'{self.machine}'" if " " in self.machine else self.machine
        words = ["solve --topology", source, f"--cpus {self.request.cpus} --policy {self.request.policy}"]
        words += [flag for option, flag in FLAGS.items() if getattr(self.request, option)]
        words += [f"--held {format_cpuset(from_mask(self.held))}"] if self.held else []
        return " ".join([*words, "--compare"])


def smallest(judged: Iterable[Judged], most: int) -> list[Case]:
    """Up to so many cases of each policy, of each machine the one with the shortest command.

    ``spread`` is left out: there the kubelet looks for free cores before all else.
    """
    found: dict[tuple[str, str], list[Case]] = {}
    for one in sorted(judged, key=_size):
        known = found.setdefault((one.request.policy, one.instance.machine), [])
        if one.nodes_wasted and one.option != "spread" and len(known) < TRIALS:
            known.append(shrunk(one))
    shortest = [min(known, key=_length) for known in found.values() if known]
    by_policy = ([case for case in shortest if case.request.policy == policy] for policy in POLICIES)
    return [case for cases in by_policy for case in sorted(cases, key=_length)[:most]]


def _length(case: Case) -> int:
    return len(case.command)


def _size(one: Judged) -> tuple[int, int, int]:
    online = prepared(one.instance.machine).machine.online
    return online.bit_count(), (online & ~one.instance.free).bit_count(), one.request.cpus


def shrunk(one: Judged) -> Case:
    """The case with as few CPUs held as keep greedy wrong by a NUMA node.

    CPUs are freed by NUMA node, by L3, then by core, each once, as long as the case stays one.
    """
    machine = prepared(one.instance.machine).machine
    case = _case(one.instance.machine, machine.online & ~one.instance.free, one.request)
    if case is None:
        raise ValueError(f"greedy wastes no NUMA node in {one}")
    for level in (machine.numa_nodes, machine.l3s, machine.cores):
        for domain in level:
            if domain.mask & case.held:
                case = _case(case.machine, case.held & ~domain.mask, case.request) or case
    return case


def _case(machine: str, held: int, request: Request) -> Case | None:
    result = best(machine, prepared(machine).machine.online & ~held, request)
    greedy = result.allocations[0].greedy if result.allocations else None
    if greedy is None or greedy["numa_nodes"] <= result.metrics["numa_nodes"]:
        return None
    return Case(machine, held, request, greedy, result.metrics)
