"""Machines, failures and tables on a terminal: what the command lines of this project have in common."""
