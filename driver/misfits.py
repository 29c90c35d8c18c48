"""What a configuration asks for that a machine does not have."""

from collections.abc import Iterator

from driver.config import Config
from driver.devices.devices import devices_of
from driver.node import NodeCPUs
from driver.options import Options, in_users_words
from models import BadInputError, InfeasibleError, Request, Topology, format_cpuset
from solver.engine import solve

PLACES = ("numa_ids", "core_type", "near")
"""Options that name parts of a machine."""


def misfits(config: Config, machine: Topology, cpus: NodeCPUs) -> Iterator[BadInputError]:
    """Each by the key that is to be changed. The driver serves even so, as far as it can."""
    if missing := config.reserved_cpus - machine.online:
        reason = f"CPUs {format_cpuset(missing)} are not online; this machine has {format_cpuset(machine.online)}"
        yield BadInputError(reason, place="reservedCPUs")
    if nothing := nothing_to_give(cpus):
        yield nothing
        return
    if cpus.allocatable == cpus.kept:
        reason = f"no CPUs are published, for {cpus.min_shared} must stay shared; ask for fewer"
        yield BadInputError(reason, place="minSharedCPUs")
    elif not devices_of(config, machine, cpus).devices:
        reason = "no CPUs are published, for no core is whole without those that are reserved or stay shared"
        yield BadInputError(reason, place="fullCores")
    yield from lacking(config.defaults, machine)


def nothing_to_give(cpus: NodeCPUs) -> BadInputError | None:
    """Why there is nothing to give, if so."""
    if cpus.allocatable:
        return None
    reserved = format_cpuset(cpus.reserved)
    return BadInputError(f"{reserved} are all CPUs there are; leave some to give", place="reservedCPUs")


def lacking(defaults: Options, machine: Topology) -> Iterator[BadInputError]:
    """Defaults by which not even one CPU can be given: NUMA nodes, a core type or a device that is not there."""
    named = {key: value for key, value in defaults.for_request().items() if key in PLACES}
    if not named:
        return
    try:
        solve(machine, Request(cpus=1, **named), engine="greedy").require()
    except (BadInputError, InfeasibleError) as error:
        reason = f"claims without options of their own get no CPUs here: {in_users_words(str(error))}"
        yield BadInputError(reason, place=in_users_words(", ".join(named)))
