"""``python -m cpusat`` is ``cpusat``."""

from cpusat.cli import main

main(prog_name="cpusat")
