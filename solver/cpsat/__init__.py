"""The exact engine: the only files that know OR-Tools."""
