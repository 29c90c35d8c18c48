"""Hypothesis without deadlines: timing lives in the benchmarks, and machines are shared."""

import os

from hypothesis import settings

settings.register_profile("cpusat", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("cpusat")
