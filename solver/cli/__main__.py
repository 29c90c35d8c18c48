"""``python -m solver.cli`` is ``cpusat``."""

from solver.cli import main

main(prog_name="cpusat")
