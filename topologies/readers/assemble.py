"""Neutral facts about CPUs become a ``Topology``: machine-wide ids are given here and nowhere else."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from models import CPU, BadInputError, Device, NUMANode, Topology
from models.cpuset import MAX_CPU
from models.request import CoreType

Key = Hashable
"""Names a domain in its source: an id, a tuple of ids, the set of its CPUs. Equal keys are the same domain."""


@dataclass(frozen=True)
class CPUFacts:
    """What a source says of one online CPU. ``None``: the source names no such domain.

    ``siblings`` names the core as the source sees it. CPUs without a socket share one.
    """

    cpu: int
    siblings: Key
    socket: Key = None
    die: Key = None
    cluster: Key = None
    numa: int | None = None
    l3: Key = None
    core_type: CoreType = "standard"

    @property
    def core(self) -> Key:
        """The siblings, as far as they lie in one socket, NUMA node and so on.

        Where a source says that siblings are apart, the larger domain is believed and the core is split, as
        the kernel itself does when it starts CPUs (it drops sibling relations across NUMA nodes). Virtual
        machines whose NUMA nodes were drawn through their cores show this, in sysfs and in lscpu.
        """
        return (self.siblings, self.socket, self.die, self.cluster, self.numa, self.l3)


Distances = Mapping[int, Sequence[int]]
"""NUMA node id to its row; columns in the order of the ids."""


def assemble(
    facts: Iterable[CPUFacts],
    *,
    name: str = "",
    numa_ids: Iterable[int] = (),
    distances: Distances | None = None,
    devices: Iterable[Device] = (),
) -> Topology:
    """The machine with these CPUs. Ids other than those of CPUs and NUMA nodes count up by lowest CPU.

    ``numa_ids`` adds NUMA nodes without CPUs. Distances are taken if complete, or not at all. Raises
    ``BadInputError`` when no CPU is online or the numbers are out of bounds.
    """
    known = sorted(facts, key=lambda fact: fact.cpu)
    if not known:
        raise BadInputError("lists no online CPU")
    ids = sorted({fact.numa for fact in known if fact.numa is not None} | set(numa_ids))
    rows = distances if distances is not None and is_complete(distances, ids) else {}
    nodes = [NUMANode(id=i, distances=dict(zip(ids, rows.get(i, ()), strict=False))) for i in _bounded(ids)]
    listed = [
        device.model_copy(update={"numa": device.numa if device.numa in ids else None}) for device in devices
    ]
    try:
        return Topology(name=name, cpus=tuple(_number(known)), numa_nodes=tuple(nodes), devices=tuple(listed))
    except ValidationError as error:
        raise BadInputError.from_pydantic(error) from None


def _bounded(ids: Sequence[int]) -> Sequence[int]:
    if ids and not 0 <= ids[0] <= ids[-1] <= MAX_CPU:
        raise BadInputError(f"NUMA node {ids[-1] if ids[0] >= 0 else ids[0]} is outside 0 to {MAX_CPU}")
    return ids


def is_complete(distances: Distances, ids: Sequence[int]) -> bool:
    """Whether there is one distance for each pair of the NUMA nodes, each an ACPI SLIT byte."""
    return set(distances) == set(ids) and all(
        len(row) == len(ids) and all(0 <= distance <= 255 for distance in row) for row in distances.values()
    )


def _number(known: Sequence[CPUFacts]) -> Iterable[CPU]:
    """The CPUs with machine-wide ids. A core whose CPUs are said to be of two types is ``standard``."""
    counters: dict[str, dict[Key, int]] = {what: {} for what in ("core", "socket", "die", "cluster", "l3")}
    types: dict[Key, set[CoreType]] = {}
    for fact in known:
        types.setdefault(fact.core, set()).add(fact.core_type)
    for fact in known:
        ids: dict[str, int | None] = {
            what: _id_of(getattr(fact, what), numbers) for what, numbers in counters.items()
        }
        kinds = types[fact.core]
        yield CPU.model_validate(
            ids
            | {
                "cpu": fact.cpu,
                "numa": fact.numa,
                "socket": ids["socket"] or 0,
                "core_type": fact.core_type if len(kinds) == 1 else "standard",
            }
        )


def _id_of(key: Key, numbers: dict[Key, int]) -> int | None:
    return None if key is None else numbers.setdefault(key, len(numbers))


def agree(reported: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Which of the reported sets each CPU lies in, when every CPU reports the set it shares something with.

    The set that most CPUs report takes its CPUs first: kernels have been seen with a corrupt cache map on one
    of forty CPUs (old Xeons, sysfs), while the others agree.
    """
    votes = Counter(reported.values())
    settled: dict[int, frozenset[int]] = {}
    for cpus in sorted(votes, key=lambda cpus: (-votes[cpus], len(cpus), min(cpus, default=0))):
        for cpu in cpus:
            settled.setdefault(cpu, cpus)
    return settled


def innermost(nodes: Mapping[int, frozenset[int]]) -> dict[int, int]:
    """The one NUMA node of each CPU: the smallest that holds it, of equal ones the lowest id.

    NUMA nodes overlap in hwloc XML, where a node without CPUs carries the CPUs it is local to, and on faulty
    firmware, where sysfs lists a CPU in several nodes.
    """
    found: dict[int, int] = {}
    for node in sorted(nodes, key=lambda node: (len(nodes[node]), node)):
        for cpu in nodes[node]:
            found.setdefault(cpu, node)
    return found
