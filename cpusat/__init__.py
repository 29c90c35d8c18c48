"""Chooses which CPUs of a machine a Kubernetes workload gets.

    from cpusat import Prepared, Request, load, solve

    machine = Prepared(load("2s8n-128c256t-epyc-7763-nps4"))
    result = solve(machine, Request(cpus=24, policy="distributed"))

Names are imported when they are first used (PEP 562): the command's ``--help`` does not wait for the engines.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models import (
        Allocation,
        BadInputError,
        Claim,
        Constraint,
        CpusatError,
        DefectError,
        Infeasible,
        InfeasibleError,
        Request,
        Result,
        Topology,
        UnknownError,
        format_cpuset,
        parse_cpuset,
    )
    from solver.engine import solve
    from solver.problem import Prepared
    from topologies.load import load

    __version__: str

__all__ = [
    "Allocation",
    "BadInputError",
    "Claim",
    "Constraint",
    "CpusatError",
    "DefectError",
    "Infeasible",
    "InfeasibleError",
    "Prepared",
    "Request",
    "Result",
    "Topology",
    "UnknownError",
    "__version__",
    "format_cpuset",
    "load",
    "parse_cpuset",
    "solve",
]

_HOMES = {"Prepared": "solver.problem", "load": "topologies.load", "solve": "solver.engine"}
"""Modules of the names that are not in ``models``."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module offers
    if name == "__version__":
        from importlib.metadata import version

        return version("cpusat")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "models")), name)
