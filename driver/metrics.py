"""Prometheus metrics: what happened, counted as it happens. What stands is ``driver.gauges``, read when asked."""

from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector

from driver.errors import Reason
from driver.ports import Stage

PREFIX = "cpusat_driver"

PREPARE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0)
"""Seconds. The kubelet gives up after 45."""

SOLVER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 45.0)

CPU_BUCKETS = tuple(float(1 << power) for power in range(11))
"""CPUs of a claim, up to 1,024."""


class Metrics:
    """Implements ``driver.ports.Observer``. ``registry`` is what ``/metrics`` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._prepares = self._counter(
            "prepares", "Claims that were prepared, by what chose their CPUs.", "engine"
        )
        self._refusals = self._counter("refusals", "Prepares and unprepares that were refused.", "reason")
        self._fallbacks = self._counter("fallbacks", "Answers of greedy in place of CP-SAT's.", "reason")
        self._repaired = self._counter("masks_repaired", "Containers whose CPUs had to be put right.")
        self._unprepares = self._counter("unprepares", "Claims that were released.")
        self._prepare_time = self._seconds("prepare", "From the kubelet's call to the reply.", PREPARE_BUCKETS)
        self._stage_time = self._seconds(
            "prepare_stage", "What a Prepare spends its time on.", STAGE_BUCKETS, "stage"
        )
        self._solver_time = self._seconds("solver", "From a question to the solver's answer.", SOLVER_BUCKETS)
        self._sizes = Histogram(
            f"{PREFIX}_claim_cpus", "CPUs of claims.", buckets=CPU_BUCKETS, registry=self.registry
        )
        build = Info(f"{PREFIX}_build", "Which build this is.", registry=self.registry)
        build.info({"version": _version()})
        ProcessCollector(registry=self.registry)

    def prepared(self, engine: str, seconds: float, cpus: int) -> None:
        """A claim got so many CPUs by an engine, or again (``ledger``): its size is counted only once."""
        self._prepares.labels(engine).inc()
        self._prepare_time.labels(engine).observe(seconds)
        if engine != "ledger":
            self._sizes.observe(cpus)

    def stage(self, name: Stage, seconds: float) -> None:
        """A Prepare has spent so long on one of its stages."""
        self._stage_time.labels(name).observe(seconds)

    def unprepared(self) -> None:
        """A claim that held CPUs has been released."""
        self._unprepares.inc()

    def refused(self, reason: Reason) -> None:
        """A Prepare or an Unprepare was refused."""
        self._refusals.labels(reason).inc()

    def solved(self, engine: str, seconds: float) -> None:
        """The solver has answered."""
        self._solver_time.labels(engine).observe(seconds)

    def fell_back(self, why: str) -> None:
        """Greedy stood in for CP-SAT."""
        self._fallbacks.labels(why).inc()

    def repaired(self, containers: int) -> None:
        """Masks that were not as they should be have been put right."""
        self._repaired.inc(containers)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str, buckets: tuple[float, ...], label: str = "engine") -> Histogram:
        return Histogram(f"{PREFIX}_{name}_seconds", text, [label], buckets=buckets, registry=self.registry)


def _version() -> str:
    try:
        return version("cpusat")
    except PackageNotFoundError:
        return "not installed"
