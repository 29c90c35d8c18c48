"""The driver measured: its solver alone, and whole, through the sockets of kubelet, runtime and API server."""
