"""Exact by search: models in CP-SAT, solved metric by metric. The only files that import OR-Tools.

``variables``, ``constraints`` and ``objectives`` are the mathematics; ``single`` and ``batch_model`` put them
together for one request and for several, ``relaxation`` for several on NUMA nodes alone; ``search`` solves,
``ties`` is the tie rule, ``bounds`` says what is proven before a search begins, and ``batch`` leads through all of
that.
"""
