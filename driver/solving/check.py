"""What the driver looks at before it believes its solver's process."""

from collections.abc import Sequence

from models import DefectError, Request, Result, to_mask
from solver.engine import solve
from solver.problem import Prepared
from solver.verify import verify


def check(prepared: Prepared, requests: Sequence[Request], free: frozenset[int], result: Result) -> None:
    """Raise ``DefectError`` unless the answer keeps every rule, or there is none and greedy has none either."""
    if bool(result.allocations) != (result.status in ("optimal", "feasible")):
        raise DefectError(f"status {result.status} with {len(result.allocations)} allocations")
    if result.allocations:
        _check_allocations(prepared, requests, free, result)
    elif solve(prepared, requests, free=free, engine="greedy", time_limit=0.0).allocations:
        raise DefectError(f"{result.infeasible or result.status}, but greedy found an answer")


def _check_allocations(
    prepared: Prepared, requests: Sequence[Request], free: frozenset[int], result: Result
) -> None:
    asked, given = [each.name for each in requests], [each.request for each in result.allocations]
    if asked != given:
        raise DefectError(f"requests {asked} were asked, {given} answered")
    taken = [to_mask(each.cpuset) for each in result.allocations]
    allocatable = to_mask(free) & prepared.scorer.allocatable
    verify(prepared.scorer, allocatable, requests, (), taken, result.metrics)
    for each in result.allocations:
        mems = {cpu.numa for cpu in prepared.topology.cpus if cpu.cpu in each.cpuset} - {None}
        if mems != each.mems:
            raise DefectError(f"{each.request}: mems {sorted(each.mems)} are not those of its CPUs")
