"""Devices: what of the node is published, and which CPUs a device stands for."""
