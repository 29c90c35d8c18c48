"""A container runtime in a process of its own, which does nothing else: if it waits, it waits for the driver.

``python -m benchmarks.driver.containers SOCKET CGROUPS CPUS NUMBER`` has so many containers from the beginning,
and then does what each line of its input says, a JSON list of a method of ``Desk`` and its arguments.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import format_cpuset, parse_cpuset
from tests.driver.nri.fake_runtime import FakeRuntime, NotCreated

PODS = 110
"""Pods of a node, as the kubelet has them at most by default."""

PAUSE = 0.02
"""Seconds between two containers that come and go."""

TIMEOUT = 2.0
"""Seconds after which a runtime drops a plugin, as containerd does by default."""

TRIES, BETWEEN = 400, 0.05
"""To create a container that the driver holds back, and the seconds between two of them."""


@dataclass(frozen=True)
class Handled:
    """What the driver was asked in a while. ``calls``: method and seconds of each. ``created``: containers that
    came and went; ``unpinned``: those of them that the runtime started without having been told a mask."""

    calls: Sequence[tuple[str, float]]
    created: int
    unpinned: int

    @property
    def seconds(self) -> list[float]:
        """Of each call."""
        return [seconds for _, seconds in self.calls]

    @property
    def worst(self) -> str:
        """The method that took longest."""
        return max(self.calls, key=lambda call: call[1])[0]

    @property
    def dropped(self) -> int:
        """Calls that the runtime has not waited for; it goes on without the driver then."""
        return sum(seconds >= TIMEOUT for seconds in self.seconds)


class Containers:
    """The runtime, for the process that measures. What a driver connects to is there as soon as it is made."""

    def __init__(self, socket: Path, cgroups: Path, cpus: frozenset[int], number: int) -> None:
        words = [str(socket), str(cgroups), format_cpuset(cpus), str(number)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()
        self._reply()

    def create(self, pod: str, name: str, variables: Sequence[str] = ()) -> None:
        """Create and start a container, again and again as a kubelet does while the driver holds it back."""
        self._ask("create", pod, name, variables)

    def remove_pod(self, pod: str) -> None:
        """End its containers, and forget it."""
        self._ask("remove_pod", pod)

    def begin(self) -> None:
        """From now on containers come and go, and what the driver is asked is timed."""
        self._ask("begin")

    def end(self) -> Handled:
        """No more of it: what was seen."""
        found = self._ask("end")
        return Handled(
            [(method, seconds) for method, seconds in found["calls"]], found["created"], found["unpinned"]
        )

    def stop_serving(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, *words: object) -> Any:  # noqa: ANN401 - JSON
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            return self._reply()

    def _reply(self) -> Any:  # noqa: ANN401 - JSON
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Desk:
    """What is done in that process."""

    def __init__(self, socket: Path, cgroups: Path, cpus: frozenset[int], number: int) -> None:
        self._calls: list[tuple[str, float]] = []
        self._created = self._unpinned = 0
        self._ending = threading.Event()
        self._runtime = FakeRuntime(socket, cpus=cpus, cgroups=cgroups, timeout=TIMEOUT, timed=self._note)
        for each in range(number):
            self._runtime.create(f"pod-{each % PODS}", f"neighbour-{each}")

    def create(self, pod: str, name: str, variables: Sequence[str]) -> None:
        """A container that carries a claim."""
        for _ in range(TRIES):
            try:
                self._runtime.create(pod, name, variables)
                return
            except NotCreated as error:
                refused = error
            time.sleep(BETWEEN)
        raise refused

    def remove_pod(self, pod: str) -> None:
        """End it."""
        self._runtime.remove_pod(pod)

    def begin(self) -> None:
        """Start to time."""
        self._calls.clear()
        self._coming = threading.Thread(target=self._come_and_go)
        self._coming.start()

    def end(self) -> dict[str, Any]:
        """What was seen."""
        self._ending.set()
        self._coming.join()
        return {"calls": self._calls, "created": self._created, "unpinned": self._unpinned}

    def _come_and_go(self) -> None:
        while not self._ending.wait(PAUSE):
            with suppress(NotCreated):
                container = self._runtime.create("passing", f"passing-{self._created}")
                self._created += 1
                self._unpinned += not container.cpus
                self._runtime.remove(container.id)

    def _note(self, method: str, seconds: float) -> None:
        self._calls.append((method, seconds))


def main(socket: str, cgroups: str, cpus: str, number: str) -> None:
    """Do as told until the input ends."""
    desk = Desk(Path(socket), Path(cgroups), parse_cpuset(cpus), int(number))
    print("null", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(desk, method)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
