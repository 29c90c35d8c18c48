"""Where the data that is not part of the project lies, and how tests skip without it."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"

needs_shared = pytest.mark.skipif(
    not (SHARED / "topologies" / "expected.json").exists(),
    reason="the recorded machines and reference answers are not beside the project",
)
