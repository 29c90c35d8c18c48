"""CP-SAT in a process of its own, greedy beside it."""
