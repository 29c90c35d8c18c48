"""Prepares and unprepares claims in processes that kill themselves: the first at the first step that changes
files, the next at the second, and so on until one comes to the end.

A step is the making, renaming or removing of a file or folder below the run's folder; the process dies just before
it is done. ``python -m tests.driver.killed FOLDER`` makes a folder in FOLDER for each run, named by its number.
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path

from driver.ports import ClaimRef
from tests.driver.bench import Bench

WRITES = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


class Countdown:
    """An audit hook that kills the process at the step of that number, when armed."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.below, self.left = f"{folder}/node/", steps

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if event not in CHANGES or not str(args[0]).startswith(self.below):
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITES):
            return
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def steps(bench: Bench, say: "Journal") -> None:
    """What the kubelet asks for, one after the other. ``say``: what it was told, before and after each call."""
    a, b, c = bench.claim("a", 4), bench.claim("b", 6), bench.claim("c", 6)
    say.prepare(bench, a)
    say.prepare(bench, b)
    say.unprepare(bench, a)
    say.prepare(bench, c)
    say.unprepare(bench, c)
    say.prepare(bench, bench.claim("b", 10, pods=("pod-2",)))
    say.prepare(bench, bench.claim("b", 10, pods=("pod-2", "pod-3")))
    say.prepare(bench, a)


class Journal:
    """What the kubelet knows: a line for each claim when it asks, and when it is answered."""

    def __init__(self, folder: Path) -> None:
        self.handle = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def prepare(self, bench: Bench, ref: ClaimRef) -> None:
        self.note(ref.uid, "prepare", None)
        self.note(ref.uid, "prepared", sorted(bench.prepare(ref)))

    def unprepare(self, bench: Bench, ref: ClaimRef) -> None:
        self.note(ref.uid, "unprepare", None)
        bench.preparer.unprepare(ref)
        self.note(ref.uid, "unprepared", None)

    def note(self, uid: str, what: str, cpus: list[int] | None) -> None:
        os.write(self.handle, json.dumps([uid, what, cpus]).encode() + b"\n")


def journal(folder: Path) -> list[tuple[str, str, list[int] | None]]:
    lines = (folder / "journal").read_text().splitlines() if (folder / "journal").exists() else []
    return [tuple(json.loads(line)) for line in lines]


def finished(folder: Path) -> bool:
    """Whether the run came to its end."""
    return (folder / "finished").exists()


def check_after_restart(folder: Path) -> None:
    """Nothing is lost, given twice or left over; and the kubelet can ask for everything once more."""
    bench, told = Bench(folder / "node", shows=True), dict[str, tuple[str, list[int] | None]]()
    bench.check()
    assert not any(entry.adopted for entry in bench.ledger.snapshot.entries.values()), "a CDI file came first"
    for uid, what, cpus in journal(folder):
        told[uid] = (what, cpus)
    for uid, (what, cpus) in told.items():
        if what == "prepared":
            assert sorted(bench.held[uid]) == cpus, f"{folder.name}: {uid}"
        if what == "unprepared":
            assert uid not in bench.held, f"{folder.name}: {uid}"
    (folder / "again").mkdir()
    steps(bench, Journal(folder / "again"))
    bench.check()
    assert {uid: len(cpus) for uid, cpus in bench.held.items()} == {"a": 4, "b": 10}


def run(folder: Path, number: int) -> bool:
    """One run, in a process of its own. Whether it came to its end."""
    (folder / "node").mkdir(parents=True)
    if child := os.fork():
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status
        return status == 0
    sys.addaudithook(Countdown(folder, number))
    steps(Bench(folder / "node", shows=True), Journal(folder))
    (folder / "finished").touch()
    os._exit(0)


def main(folder: Path) -> None:
    for number in itertools.count():
        if run(folder / str(number), number):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
