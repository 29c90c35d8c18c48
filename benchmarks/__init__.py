"""Comparisons of allocators: how good, how fast, and does it pay over a node's life. ``python -m benchmarks``."""
