"""Where machines come from: catalog, readers, synthetic strings, and the graph that solvers read."""
