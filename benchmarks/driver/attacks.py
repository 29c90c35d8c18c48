"""Attacks on a node: what tenants or a slow machine can do, while containers and ordinary claims come and go.

The runtime waits 2 s for a plugin's answer; then it drops the plugin, and starts containers without a mask.
"""

import json
import os
import random
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from benchmarks.driver.bare import bare_call
from benchmarks.driver.containers import Containers, Handled
from benchmarks.driver.node import PATIENCE, Node
from benchmarks.driver.rows import AttackRow
from benchmarks.timing import quantile
from driver.ports import ClaimRef
from models import Request
from tests.driver.kubelet.kubelet import UNANSWERED, Refused
from topologies.load import load

MACHINE = "2s2n-256c512t-xeon-6980p-hex"
"""The largest of the catalog: greedy works hardest for it."""

TIME_LIMIT = 2.0
"""The driver's default, in seconds, for its solver."""

SLOW = 0.005
"""Seconds that a cgroup file takes longer to open."""

SIZES = (1.5, 7.9)
"""MiB of the API server's answers: the most that etcd holds, and nearly what 0.1.0 has read."""

PADDING = "@padding@"
"""Stands in a claim where many small objects are to be."""

BIG, REQUESTS = 32, 32
"""Claims whose objects are that big, prepared in one call; requests of a hopeless claim."""

HOPELESS = (292, 57, 259, 214, 228, 229, 226, 161) * 2
"""Seeds of claims that cannot be met, over which greedy works for 0.6 to 1 s: the worst of 312."""

LIVE = 4
"""Ordinary claims at the same time."""


@dataclass(frozen=True)
class Attack:
    """What befalls a node with so many containers."""

    name: str
    containers: int
    big: bool = False
    hopeless: bool = False
    slow: bool = False


ATTACKS = (
    Attack("none", 600),
    Attack("big answers of the API server", 600, big=True),
    Attack("hopeless claims", 600, hopeless=True),
    Attack("slow cgroup files", 600, slow=True),
    Attack("many containers", 2000),
    *(Attack("all at once", number, big=True, hopeless=True, slow=True) for number in (60, 600, 2000)),
)


@dataclass
class Ordinary:
    """Claims that come and go meanwhile, as they should; how many were refused."""

    node: Node
    refused: int = 0
    live: deque[ClaimRef] = field(default_factory=deque)

    def __call__(self, stop: threading.Event) -> None:
        """Until it is over."""
        while not stop.wait(0.05):
            try:
                self.live.append(self.node.come([Request(name="r", cpus=8)]))
            except (Refused, UNANSWERED):
                self.refused += 1
            if len(self.live) > LIVE:
                self.node.go(self.live.popleft())


def measure(attack: Attack, seconds: float, machine: str = MACHINE) -> Iterator[AttackRow]:
    """A row for the attack, which goes on for so long."""
    topology = load(machine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runtime = Containers(folder / "nri.sock", folder / "cgroup", topology.online, attack.containers)
        node = Node(folder, topology, TIME_LIMIT, runtime, neighbours=0, environment=_environment(attack))
        with node.running():
            bare, ordinary = bare_call(folder), Ordinary(node)
            _ready(node)
            runtime.begin()
            _together([ordinary, *_attackers(attack, node)], seconds)
            yield _row(attack, node, ordinary, runtime.end(), bare)


def _ready(node: Node) -> None:
    """Wait until a claim has been prepared: then the driver and the runtime have found each other."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            node.come([Request(name="r", cpus=8)])
            node.forget_times()
            return
        except Refused:
            assert time.monotonic() < end, node.log.read_text()[-2000:]
            time.sleep(0.5)


def _environment(attack: Attack) -> dict[str, str]:
    if not attack.slow:
        return {}
    paths = (str(Path(__file__).with_name("slow")), os.environ.get("PYTHONPATH", ""))
    return {"CPUSAT_SLOW": str(SLOW), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _together(actions: Sequence[Callable[[threading.Event], None]], seconds: float) -> None:
    """Each in a thread of its own, until the time is up and each has come to an end."""
    stop = threading.Event()
    threads = [threading.Thread(target=action, args=(stop,)) for action in actions]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()


def _attackers(attack: Attack, node: Node) -> Iterator[Callable[[threading.Event], None]]:
    if attack.big:
        yield _asker(node, _big_claims(node))
    for seed in HOPELESS if attack.hopeless else ():
        yield _asker(node, [node.claim(hopeless(seed))])


def _asker(node: Node, refs: Sequence[ClaimRef]) -> Callable[[threading.Event], None]:
    """Asks for the claims in one call, again and again, and gives back what it gets."""

    def ask(stop: threading.Event) -> None:
        while not stop.is_set():
            with suppress(UNANSWERED):
                replies = node.kubelet.prepare(*refs)
                if given := [ref for ref in refs if not replies[ref.uid].error]:
                    node.kubelet.unprepare(*given)

    return ask


def _big_claims(node: Node) -> list[ClaimRef]:
    """Claims for which the API server's answers are padded to one of the sizes."""
    refs = [node.claim([Request(name="r", cpus=1)]) for _ in range(BIG)]
    padding = [b"{}," * int(size * 2**20 / len(b"{},")) + b"{}" for size in SIZES]
    padded = {ref.name: padding[number % len(SIZES)] for number, ref in enumerate(refs)}

    def answer(method: str, path: str) -> tuple[int, bytes] | None:
        name = path.partition("?")[0].rpartition("/")[2]
        if method != "GET" or name not in padded:
            return None
        document = node.api.get("resourceclaims", "default", name)
        head, _, tail = json.dumps({**(document or {}), "padding": PADDING}).partition(json.dumps(PADDING))
        return 200, b"".join((head.encode(), b"[", padded[name], b"]", tail.encode()))

    node.api.fault = answer
    return refs


def hopeless(seed: int) -> list[Request]:
    """Requests of a claim that contradict each other in ways that take long to find out."""
    chance, found = random.Random(seed), list[Request]()
    while len(found) < REQUESTS:
        with suppress(ValidationError):
            found.append(_one(chance, f"r{len(found)}"))
    return found


def _one(chance: random.Random, name: str) -> Request:
    """A request at random; options that exclude each other raise ``ValidationError``."""
    said: dict[str, object] = {"policy": chance.choice(["packed", "distributed"])}
    for share, option, value in (
        (0.5, "prefer_l3", True),
        (0.5, "align_by_socket", True),
        (0.5, "threads", "spread"),
        (0.4, "numa_min", "all"),
        (0.5, "fit", "loose"),
    ):
        if chance.random() < share:
            said[option] = value
    if chance.random() < 0.6:
        said["strict"] = chance.choice([True, ("policy",), ("prefer_l3",)])
    return Request.model_validate({"name": name, "cpus": chance.randint(1, 30), **said})


def _row(attack: Attack, node: Node, ordinary: Ordinary, handled: Handled, bare: float) -> AttackRow:
    found, prepared = [1000 * each for each in handled.seconds], [1000 * each for each in node.prepared]
    return AttackRow(
        attack=attack.name,
        containers=attack.containers,
        handlers=len(found),
        median_ms=median(found),
        p99_ms=quantile(found, 0.99),
        worst_ms=max(found),
        worst=handled.worst,
        bare=max(found) / bare,
        dropped=handled.dropped,
        unpinned=handled.unpinned,
        prepares=len(prepared),
        refused=ordinary.refused,
        prepare_median_ms=median(prepared or [0.0]),
        prepare_worst_ms=max(prepared, default=0.0),
        peak_mb=node.peak_mb(),
    )
