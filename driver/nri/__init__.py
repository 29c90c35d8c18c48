"""The container runtime's side: which container runs on which CPUs, over NRI."""
