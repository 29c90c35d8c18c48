"""Decides which CPUs a request gets. ``from solver import solve`` is the way in."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.engine import solve
    from solver.problem import Prepared

__all__ = ["Prepared", "solve"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module offers
    """Import late: the command line wants ``solver.cli`` without the engines."""
    if name == "solve":
        from solver.engine import solve

        return solve
    if name == "Prepared":
        from solver.problem import Prepared

        return Prepared
    raise AttributeError(f"module 'solver' has no attribute {name!r}")
