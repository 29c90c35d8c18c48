"""Who holds which CPUs: the truth, in memory and on disk."""
