"""What options mean under each grouping of devices: the table in ``docs/driver/grouping.md``."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from driver.claims.configs import Said
from driver.config import Config
from driver.errors import RefusedError
from driver.options import KEYS, Options

_NOTHING: tuple[Any, ...] = (None, False, "packed", "any", frozenset())
"""Values with which an option asks for nothing."""

_RULES = ("full_cores", "numa_max", "numa_ids", "core_type", "strict")
_OF_THE_WHOLE = ("allocation_policy", "numa_min", "numa_max", "align_by_socket", "prefer_l3")
"""Options about how many domains a request touches."""

_SPREAD = (("allocation_policy", "policy", "distributed"), ("numa_min", "numa_min", "a floor"))
"""Options that spread over NUMA nodes: field, preference, and how to call it."""

_CHOSEN = "each CPU is a device here and the scheduler chose them, so nothing is left to place"


def notes_on(where: str, said: Said, devices: int, config: Config) -> list[str]:
    """What people should know of a request that consumes so many devices.

    Raises ``RefusedError("BadConfig")`` where its options cannot mean anything.
    """
    grouping = config.group_by if config.cpu_device_mode == "grouped" else "individual"
    meaning = _named if said.cpuset is not None and grouping != "individual" else _MEANINGS[grouping]
    try:
        _keep_rule(said, config)
        return [f"{where}: {note}" for note in [*meaning(said, config), *_each(said, devices)]]
    except ValueError as error:
        raise RefusedError("BadConfig", f"{where}: {error}") from None


def _keep_rule(said: Said, config: Config) -> None:
    """Capacity is published in whole cores where they are the node's rule: who splits one takes what others were
    promised."""
    for field, value in (("full_cores", False), ("threads", "spread")):
        if config.full_cores and getattr(said.own, field) == value:
            raise ValueError(f"{KEYS[field]}: whole cores are the rule of this node (fullCores); leave it out")


def _named(said: Said, config: Config) -> Iterator[str]:
    """CPUs named by number leave nothing to choose: then preferences count for nothing, and rules are refused."""
    if rules := _set(said.own, _RULES):
        reason = "cpuConfig.cpuset names the CPUs, so the driver cannot keep a rule about them"
        raise ValueError(f"{KEYS[rules[0]]}: {reason}; leave out one of the two")
    if wanted := _set(said.own, _PLACEMENT):
        keys = ", ".join(KEYS[field] for field in wanted)
        yield f"cpuConfig.cpuset names the CPUs, so these options count for nothing: {keys}"


def _machine(said: Said, config: Config) -> Iterator[str]:
    if config.is_external:
        raise ValueError(
            "machineAllocation is external here, so a scheduler must name the CPUs (cpuConfig.cpuset)"
        )
    return iter(())


def _socket(said: Said, config: Config) -> Iterator[str]:
    return iter(())


def _numa_node(said: Said, config: Config) -> Iterator[str]:
    """Said and refused only where the claim or its class ask for it: the node's defaults are for all groupings."""
    for field, preference, what in _SPREAD:
        spreads = getattr(said.options, field) not in (*_NOTHING, 1)
        asked = _set(said.own, (field, "strict"))
        if not spreads or not asked:
            continue
        reason = f"{KEYS[field]}: a device is one NUMA node here, within which {what} adds nothing"
        if _insists(said.options, preference):
            raise ValueError(f"{reason}; leave out strict, or let the driver group by socket or machine")
        yield reason


def _individual(said: Said, config: Config) -> Iterator[str]:
    for field in _PLACEMENT:
        if getattr(said.own, field) is not None:
            raise ValueError(f"{KEYS[field]}: {_CHOSEN}; let the driver group CPUs, or leave it out")
    return iter(())


def _each(said: Said, devices: int) -> Iterator[str]:
    wanted = _set(said.own, _OF_THE_WHOLE)
    if devices > 1 and wanted and said.cpuset is None:
        keys = ", ".join(KEYS[field] for field in wanted)
        yield f"its CPUs are of {devices} devices, and these options hold on each by itself: {keys}"


def _set(options: Options, fields: Sequence[str]) -> list[str]:
    return [field for field in fields if getattr(options, field) not in _NOTHING]


def _insists(options: Options, preference: str) -> bool:
    return options.strict is True or (isinstance(options.strict, frozenset) and preference in options.strict)


_PLACEMENT = tuple(field for field in Options.model_fields if field != "memory")
_MEANINGS: dict[str, Callable[[Said, Config], Iterator[str]]] = {
    "machine": _machine,
    "socket": _socket,
    "numanode": _numa_node,
    "individual": _individual,
}
