"""Answers as plain text for programs, ``taskset`` and cgroup files."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from cpusat.cli.compare import Comparison
from models import Allocation, Result, format_cpuset, format_mask
from topologies.terminal.streams import printable

_OFTEN_EMPTY = ("metrics", "bounds", "infeasible", "notes")

_LINES: dict[str, tuple[str, Callable[[Allocation], list[str]]]] = {
    "cpuset": ("{}: ", lambda given: [format_cpuset(given.cpuset)]),
    "mask": ("{}: ", lambda given: [format_mask(given.cpuset)]),
    "cgroup": (
        "{}/",
        lambda given: [
            f"cpuset.cpus={format_cpuset(given.cpuset)}",
            *([f"cpuset.mems={format_cpuset(given.mems)}"] if given.mems else []),
        ],
    ),
}
"""Format to what stands before each line where there are several requests, and an allocation's lines."""


def as_lines(result: Result, form: str) -> Iterator[str]:
    """The lines of ``cpuset``, ``mask`` or ``cgroup``; each with its request's name if there are several."""
    prefix, lines = _LINES[form]
    for given in result.allocations:
        head = prefix.format(printable(given.request)) if len(result.allocations) > 1 else ""
        yield from (head + line for line in lines(given))


def as_claim_config(result: Result) -> list[str]:
    """Lines of what stands in a ResourceClaim's ``spec.devices`` to give each request its CPUs by number.

    The DRA CPU driver reads it (``v1alpha1``) where an external scheduler chooses the CPUs.
    """
    import yaml

    entries = [
        {
            "requests": [given.request],
            "opaque": {
                "driver": "dra.cpu",
                "parameters": {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": format_cpuset(given.cpuset)}},
            },
        }
        for given in result.allocations
    ]
    return yaml.safe_dump({"config": entries}, sort_keys=False).splitlines() if entries else []


def as_json(result: Result, comparison: Comparison | None = None) -> str:
    """The result as an object; what does not apply is left out, CPU sets are kernel lists."""
    without: dict[str, Any] = {name: True for name in _OFTEN_EMPTY if not getattr(result, name)}
    if not any(given.greedy for given in result.allocations):
        without["allocations"] = {"__all__": {"greedy"}}
    document = result.model_dump(mode="json", exclude=without)
    if comparison is not None:
        document["compare"] = comparison.as_dict()
    return json.dumps(document, indent=2)
