"""Plain values: CPU sets, machines, requests, allocations, errors. Imports nothing of ours."""

from models.cpuset import MAX_CPU, CPUSet, format_cpuset, format_mask, parse_cpuset
from models.errors import BadInputError, CpusatError, DefectError, InfeasibleError
from models.request import Claim, Constraint, Level, Request
from models.topology import CPU, Device, NUMANode, Topology

__all__ = [
    "CPU",
    "MAX_CPU",
    "BadInputError",
    "CPUSet",
    "Claim",
    "Constraint",
    "CpusatError",
    "DefectError",
    "Device",
    "InfeasibleError",
    "Level",
    "NUMANode",
    "Request",
    "Topology",
    "format_cpuset",
    "format_mask",
    "parse_cpuset",
]
