"""Exact without search: one request by dynamic programming over NUMA nodes, where counting is exact.

``patterns`` says how many NUMA nodes of which kind may be used, ``recurrence`` what that costs, ``walk`` which
nodes those are, and ``optimum`` puts them together. Knows nothing of OR-Tools.
"""
