"""The solver's process as a thread: what it answers, and its end."""

from multiprocessing.connection import Pipe
from threading import Thread

from driver.solving import worker
from driver.solving.messages import READY, Question, Reply
from models import Request
from topologies.load import load

MACHINE = load("socket:2 core:4 cpu:2")


def test_questions_are_answered_until_the_other_end_is_closed():
    ours, theirs = Pipe()
    thread = Thread(target=worker.serve, args=(theirs,))
    thread.start()
    ours.send_bytes(MACHINE.model_dump_json(by_alias=True).encode())
    assert ours.recv_bytes() == READY
    for cpus in (2, 4):
        question = Question(requests=(Request(cpus=cpus),), free=MACHINE.online, time_limit=20)
        ours.send_bytes(question.model_dump_json().encode())
        reply = Reply.model_validate_json(ours.recv_bytes())
        assert len(reply.result.allocations[0].cpuset) == cpus
    ours.close()
    thread.join()
