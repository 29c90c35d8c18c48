"""The solver's process with a fault, which the environment names."""

import os
import struct
import sys
import time

from driver.solving import worker
from driver.solving.messages import Reply
from models import DefectError


def _lie(prepared, question):
    """All requests get the same CPUs."""
    result = _honest(prepared, question).result
    first = result.allocations[0]
    same = tuple(each.model_copy(update={"cpuset": first.cpuset}) for each in result.allocations)
    return Reply(result=result.model_copy(update={"allocations": same}))


def _eat(prepared, question):
    """More memory than the process may have."""
    return bytearray(2 * worker.ADDRESS_SPACE)


def _babble(prepared, question):
    """No JSON of ours."""
    return Reply.model_construct(result="no result")


def _confess(prepared, question):
    """What ``solve`` does when it catches itself at a wrong answer."""

    def solve(*args, **keywords):
        raise DefectError("two and two are five")

    worker.solve = solve
    return _honest(prepared, question)


def _quit(prepared, question):
    os._exit(3)


def _drip(prepared, question):
    """A long answer, byte by byte."""
    descriptor = int(sys.argv[2])
    os.write(descriptor, struct.pack("!i", 2**20))
    while True:
        os.write(descriptor, b" ")
        time.sleep(0.1)


_honest = worker.answer
FAULTS = {"lie": _lie, "eat": _eat, "babble": _babble, "confess": _confess, "quit": _quit, "drip": _drip}

if __name__ == "__main__":
    fault = os.environ["FAULT"]
    if fault == "never ready":
        sys.exit("not today")
    worker.answer = FAULTS[fault]
    worker.main()
