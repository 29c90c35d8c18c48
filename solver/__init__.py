"""Decides which CPUs a request gets."""
