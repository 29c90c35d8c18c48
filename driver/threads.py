"""Threads that are all there from the start: when none can be made (a full cgroup, no memory), nothing changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

START_LIMIT = 30.0
"""Seconds until all of them run."""


def started_pool(size: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads run already. Raises ``RuntimeError`` where they cannot be made."""
    pool = ThreadPoolExecutor(size, thread_name_prefix=name)
    all_there = threading.Barrier(size + 1)
    try:
        for _ in range(size):
            pool.submit(all_there.wait, START_LIMIT)
        all_there.wait(START_LIMIT)
    except RuntimeError as error:  # ``BrokenBarrierError`` is one, too.
        all_there.abort()
        pool.shutdown(wait=False)
        raise RuntimeError(f"{size} threads {name!r} cannot be started: {error}") from None
    return pool
