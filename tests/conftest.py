"""Settings for all tests."""

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Solves that pytest-benchmark could time run once, for their assertions, unless timing is asked for."""
    asked = any(getattr(config.option, f"benchmark_{how}", False) for how in ("enable", "only"))
    if hasattr(config.option, "benchmark_disable") and not asked:
        config.option.benchmark_disable = True
