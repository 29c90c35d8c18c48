"""The process that answers the runtime, with a fault, which the environment names."""

import os
import sys
import threading
import time

from driver.nri import process
from driver.nri.messages import News
from driver.nri.process import Side


def _babble(side, step):
    """No JSON of ours."""
    side._outbox.put(lambda: News.model_construct(look=["no", "uid"]))


def _quit(side, step):
    os._exit(3)


def _hold_lock(side, step):
    """The lock that every handler needs is never free again."""
    _take(side, step)
    threading.Thread(target=side._runtime._registry._lock.acquire, daemon=True).start()


def _lose_thread(side, step):
    """The thread that keeps the connection ends."""
    side._runtime._keep_connected = lambda: None
    side._runtime._thread = threading.Thread(target=lambda: None)
    _take(side, step)


def _dawdle(side, step):
    """It goes by a change a second after it has come."""
    time.sleep(1.0)
    _take(side, step)


def _do_not_know(side, question):
    """Questions about claims are not answered."""
    if question.about not in ("carries", "names"):
        _answer(side, question)


_take, _answer = Side.take, Side.answer
TAKE = {
    "babble": _babble,
    "quit": _quit,
    "hold lock": _hold_lock,
    "lose thread": _lose_thread,
    "dawdle": _dawdle,
}

if __name__ == "__main__":
    fault = os.environ["FAULT"]
    if fault == "never ready":
        sys.exit("not today")
    Side.take = TAKE.get(fault, _take)
    if fault == "silent":
        Side.answer = _do_not_know
    process.main()
