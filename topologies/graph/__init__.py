"""The machine as a networkx graph, and all questions that are about the graph. Nothing else imports networkx.

``build`` makes the graph of a topology document, ``machine`` answers what solvers ask of it, ``symmetry`` says
which NUMA nodes may change places, ``dot`` writes it for Graphviz.
"""

from topologies.graph.machine import Domain, Home, Machine

__all__ = ["Domain", "Home", "Machine"]
