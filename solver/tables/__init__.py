"""The exact method without search: tables of what taking k CPUs costs, added up from cores to machines."""
