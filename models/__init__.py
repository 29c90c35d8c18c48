"""Plain values: CPU sets, machines, requests, allocations, errors. Imports nothing of ours."""

from models.allocation import Allocation, Infeasible, Metrics, Nearest, Result, Rule
from models.cpuset import (
    MAX_CPU,
    CPUSet,
    format_cpuset,
    format_mask,
    from_mask,
    parse_cpuset,
    read_cpuset,
    to_mask,
    union,
)
from models.errors import BadInputError, CpusatError, DefectError, InfeasibleError, UnknownError
from models.request import Claim, Constraint, Level, Preference, Request
from models.topology import CPU, Device, NUMANode, Topology

__all__ = [
    "CPU",
    "MAX_CPU",
    "Allocation",
    "BadInputError",
    "CPUSet",
    "Claim",
    "Constraint",
    "CpusatError",
    "DefectError",
    "Device",
    "Infeasible",
    "InfeasibleError",
    "Level",
    "Metrics",
    "NUMANode",
    "Nearest",
    "Preference",
    "Request",
    "Result",
    "Rule",
    "Topology",
    "UnknownError",
    "format_cpuset",
    "format_mask",
    "from_mask",
    "parse_cpuset",
    "read_cpuset",
    "to_mask",
    "union",
]
