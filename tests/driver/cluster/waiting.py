"""Waiting for what other threads do."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0


def until(true: Callable[[], Any]) -> Any:
    """What the function returns once that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"it did not become so in {PATIENCE:.0f} s"
        time.sleep(0.02)
    return found
