"""The kubelet's own CPU assignment, on bit masks: the answers that users of cpumanager know.

``packed`` takes the largest whole domains first; ``distributed`` gives equal shares to NUMA nodes, which
``shares`` decides by means of ``subsets``. ``order`` has the order in which the kubelet visits domains, and
``unequal`` what becomes of its averages. Behaviour after ``pkg/kubelet/cm/cpumanager/cpu_assignment.go`` of
Kubernetes, as the CPU driver has it in ``pkg/cpumanager`` too.
"""

from solver.greedy.distributed import take_distributed
from solver.greedy.packed import take_packed

__all__ = ["take_distributed", "take_packed"]
