"""The machine and the configurations that claims are read under in these tests."""

from topologies import synthetic

FOUR_NODES = synthetic.build("socket:2 numa:2 core:4 cpu:2")
"""32 CPUs: NUMA node n has cores 4n to 4n + 3, whose second CPUs are 16 above the first."""

MACHINE = {"groupBy": "machine"}
SOCKET = {"groupBy": "socket"}
NUMA_NODE: dict[str, str] = {}
INDIVIDUAL = {"cpuDeviceMode": "individual"}
EXTERNAL = {"groupBy": "machine", "machineAllocation": "external"}
