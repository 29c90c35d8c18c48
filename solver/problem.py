"""The problem that engines solve: requests on one machine, with all rules about single CPUs applied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models import Constraint, Level, Request, Topology, to_mask
from solver.score import Scorer, floor, share_unit
from topologies.graph import Machine

CoreShape = tuple[int, int, int]
"""How many CPUs of a core are allowed, near among those, and free, allowed or not."""


class Prepared:
    """A machine read once, for many solves: its graph, and the scorer that judges all engines."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.machine = Machine(topology)
        self.scorer = Scorer(self.machine)


class CorePart(NamedTuple):
    """What one request may take of one core.

    ``numa``, ``socket``, ``l3``, ``core`` are positions in the machine's tuples (``l3`` is -1 where no CPU has
    one); ``allowed`` and ``near`` are masks of the CPUs that may be taken and of those among them that are
    local. ``shape`` is all that counts of the core besides its place.
    """

    # A tuple, because there is one per core of each request: a dataclass takes three times as long to make.

    core: int
    numa: int
    socket: int
    l3: int
    core_type: str
    allowed: int
    near: int
    shape: CoreShape

    @property
    def size(self) -> int:
        """How many CPUs of the core may be taken."""
        return self.shape[0]


@dataclass(frozen=True)
class AllocationRules:
    """Rules about a request's whole allocation, whichever option sets them (``strict``, ``numa_max``, ``match``).

    At least and at most so many NUMA nodes; one socket; one L3; an even split; one CPU per core.
    """

    numa_least: int = 1
    numa_most: int = 4096
    one_socket: bool = False
    one_l3: bool = False
    even: bool = False
    one_thread: bool = False


@dataclass(frozen=True)
class Demand:
    """One request: which CPUs it may take, what counts as near, even and enough.

    ``unit``: by how many CPUs equal shares may differ. ``floor``: how many NUMA nodes ``numa_min`` asks for.
    """

    request: Request
    allowed: int
    near: int
    unit: int
    floor: int
    rules: AllocationRules
    parts: tuple[CorePart, ...]

    @property
    def cpus(self) -> int:
        """How many CPUs are asked for."""
        return self.request.cpus


@dataclass(frozen=True)
class Problem:
    """Requests to be placed together on a machine; ``free`` masks all free CPUs before the allocation."""

    prepared: Prepared
    free: int
    demands: tuple[Demand, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine's graph and domains."""
        return self.prepared.machine

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests, in input order."""
        return tuple(demand.request for demand in self.demands)

    @property
    def l3s_nest(self) -> bool:
        """Whether every L3 lies in one NUMA node."""
        return self.machine.nests("l3", "numa")

    @classmethod
    def of(
        cls, prepared: Prepared, free: int, requests: Sequence[Request], constraints: Sequence[Constraint] = ()
    ) -> "Problem":
        """The problem of placing the requests on the free CPUs, a mask.

        Raises ``BadInputError`` when a request is to be near something that the machine does not have.
        """
        names = [request.name for request in requests]
        matched = [
            {rule.match for rule in constraints if i in rule.concerns(names)} - {None}
            for i in range(len(requests))
        ]
        demands = tuple(_demand(prepared, free, *each) for each in zip(requests, matched, strict=True))
        return cls(prepared, free, demands, tuple(constraints))


def _demand(prepared: Prepared, free: int, request: Request, matched: set[Level | None]) -> Demand:
    machine = prepared.machine
    near = machine.online if request.near is None else machine.near(request.near)
    allowed = free & _named(machine, request)
    if request.is_strict("near"):
        allowed &= near
    if request.full_cores:
        allowed = sum(core.mask for core in machine.cores if core.mask & ~allowed == 0)
    unit = share_unit((core.mask for core in machine.cores), free, request)
    enough = floor(prepared.scorer.allocatable, (node.mask for node in machine.numa_nodes), request)
    rules = _rules(request, enough, matched, has_l3s=bool(machine.l3s))
    return Demand(request, allowed, near, unit, enough, rules, _parts(machine, free, allowed, near))


def _rules(request: Request, enough: int, matched: set[Level | None], has_l3s: bool) -> AllocationRules:
    most = request.numa_max or AllocationRules.numa_most
    return AllocationRules(
        numa_least=max(1, enough) if request.is_strict("numa_min") else 1,
        numa_most=1 if "numa" in matched else most,
        one_socket=request.is_strict("align_by_socket") or "socket" in matched,
        one_l3=has_l3s and (request.is_strict("prefer_l3") or "l3" in matched),
        even=request.is_strict("policy"),
        one_thread=request.is_strict("threads"),
    )


def _named(machine: Machine, request: Request) -> int:
    """CPUs that ``within``, ``numa_ids`` and ``core_type`` leave."""
    named = machine.online if request.within is None else to_mask(request.within)
    if request.numa_ids is not None:
        named &= sum(node.mask for node in machine.numa_nodes if node.id in request.numa_ids)
    if request.core_type != "any":
        named &= sum(core.mask for core in machine.cores if core.core_type == request.core_type)
    return named


def _parts(machine: Machine, free: int, allowed: int, near: int) -> tuple[CorePart, ...]:
    return tuple(
        CorePart(
            core=home.core,
            numa=home.numa,
            socket=home.socket,
            l3=home.l3,
            core_type=core.core_type,
            allowed=(own := core.mask & allowed),
            near=(close := own & near),
            shape=(own.bit_count(), close.bit_count(), (core.mask & free).bit_count()),
        )
        for home, core in zip(machine.homes, machine.cores, strict=True)
        if core.mask & allowed
    )
