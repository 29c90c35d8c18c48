"""An observer that keeps what it is told."""

from collections import Counter


class Recorder:
    """Implements ``driver.ports.Observer``."""

    def __init__(self) -> None:
        self.engines: Counter[str] = Counter()
        self.solvers: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.masks = self.released = 0

    def prepared(self, engine, seconds, cpus):
        assert seconds >= 0
        self.engines[engine] += 1
        self.sizes.append(cpus)

    def stage(self, name, seconds):
        assert seconds >= 0
        self.stages[name] += 1

    def unprepared(self):
        self.released += 1

    def refused(self, reason):
        self.reasons[reason] += 1

    def solved(self, engine, seconds):
        assert seconds >= 0
        self.solvers[engine] += 1

    def fell_back(self, why):
        self.fallbacks[why] += 1

    def repaired(self, containers):
        self.masks += containers
