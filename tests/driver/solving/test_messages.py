"""Nothing is lost between the driver and its solver's process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from driver.solving.messages import BadInput, Question, Reply
from models import BadInputError, Request
from solver.engine import solve
from topologies.load import load

MACHINE = load("socket:2 numa:2 core:4 cpu:2")
CPUS = st.frozensets(st.integers(0, 31))
PREFERENCES = st.frozensets(st.sampled_from(["policy", "numa_min", "near", "align_by_socket", "prefer_l3"]))


@st.composite
def requests(draw, name):
    return Request(
        name=name,
        cpus=draw(st.integers(1, 40)),
        policy=draw(st.sampled_from(["packed", "distributed"])),
        full_cores=draw(st.booleans()),
        prefer_l3=draw(st.booleans()),
        numa_min=draw(st.sampled_from([None, 1, 2, "all"])),
        numa_ids=draw(st.none() | st.frozensets(st.integers(0, 3), min_size=2)),
        fit=draw(st.sampled_from(["tight", "loose"])),
        within=draw(st.none() | st.just(frozenset(range(40)))),
        strict=draw(st.booleans() | PREFERENCES),
    )


@given(requests("a"), requests("b"), CPUS, st.floats(0, 20))
def test_a_question_is_read_as_it_was_asked(a, b, free, time_limit):
    question = Question(requests=(a, b), free=free, time_limit=time_limit)
    assert Question.model_validate_json(question.model_dump_json()) == question


@settings(max_examples=30)
@given(requests("a"), CPUS)
def test_a_result_is_read_as_it_was_found(request, free):
    result = solve(MACHINE, request, free=free, engine="greedy")
    assert Reply.model_validate_json(Reply(result=result).model_dump_json()).result == result


def test_bad_input_keeps_its_parts():
    error = BadInput(reason="no such device", place="near", file="claim").error()
    assert str(error) == str(BadInputError("no such device", place="near", file="claim"))


def test_what_is_no_reply_is_refused():
    with pytest.raises(ValidationError):
        Reply.model_validate_json('{"result": null, "code": "import os"}')
