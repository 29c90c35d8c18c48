"""An observer that keeps what it is told."""

from collections import Counter


class Recorder:
    """Implements ``driver.ports.Observer``."""

    def __init__(self) -> None:
        self.engines: Counter[str] = Counter()
        self.solvers: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.masks = 0

    def prepared(self, engine, seconds):
        assert seconds >= 0
        self.engines[engine] += 1

    def refused(self, reason):
        self.reasons[reason] += 1

    def solved(self, engine, seconds):
        assert seconds >= 0
        self.solvers[engine] += 1

    def fell_back(self, why):
        self.fallbacks[why] += 1

    def repaired(self, containers):
        self.masks += containers
