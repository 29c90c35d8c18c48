"""The kubelet's side: registration, the DRA service and health, over gRPC."""
