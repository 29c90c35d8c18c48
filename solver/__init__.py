"""Decides which CPUs a request gets: ``solver.engine.solve``, which the package ``cpusat`` offers to callers."""
