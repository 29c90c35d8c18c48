"""Errors carry their data and say it in one line; results hand out what there is or raise."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from models import (
    Allocation,
    BadInputError,
    CpusatError,
    DefectError,
    Infeasible,
    InfeasibleError,
    Nearest,
    Result,
    Rule,
)

CLASH = Infeasible(
    rules=(
        Rule(name="full_cores", request="a", text="3 CPUs in whole cores asked", asked=3, available=8),
        Rule(name="numa_max", request="a", text="3 CPUs in one NUMA node asked"),
    ),
    nearest=Nearest(request="a", option="cpus", asked="3", instead="2"),
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "wrong"),
        ({"place": "line 3"}, "line 3: wrong"),
        ({"file": "t.json"}, "t.json: wrong"),
        ({"place": "line 3", "file": "t.json"}, "t.json: line 3: wrong"),
    ],
)
def test_bad_input_says_file_place_and_reason(given, text):
    assert str(BadInputError("wrong", **given)) == text


def test_bad_input_keeps_the_first_file_that_it_names():
    error = BadInputError("wrong", place="line 3")
    assert str(error.within("t.json")) == "t.json: line 3: wrong"
    assert str(error.within("t.json").within("other")) == "t.json: line 3: wrong"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int


class Outer(BaseModel):
    inner: list[Inner]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"inner": [{"size": 1}, {"size": "x"}]}, "t.json: inner.1.size: Input should be a valid integer"),
        ({"inner": [{"size": 1, "sise": 2}]}, "t.json: inner.0.sise: unknown key"),
        ({"inner": [{}, {}, {}]}, "t.json: inner.0.size: Field required (and 2 more problems)"),
    ],
)
def test_the_first_problem_of_a_document_is_told_and_how_many_more_there_are(document, text):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(document)
    assert str(BadInputError.from_pydantic(caught.value, file="t.json")).startswith(text)


def test_a_second_problem_is_one_more_problem():
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": [{}, {}]})
    assert "(and 1 more problem)" in str(BadInputError.from_pydantic(caught.value))


def test_a_clash_says_its_rules_and_the_way_out():
    assert str(CLASH) == (
        "3 CPUs in whole cores asked; 3 CPUs in one NUMA node asked; these cannot all be met together. "
        "Request 'a' would be placed with cpus 2"
    )
    assert str(CLASH.model_copy(update={"nearest": None})).endswith("these cannot all be met together")


@pytest.mark.parametrize("error", [BadInputError("x"), DefectError("x"), InfeasibleError(CLASH)])
def test_all_errors_are_caught_by_one_name(error):
    assert isinstance(error, CpusatError)
    assert str(error)


def test_a_result_hands_out_its_allocations():
    given = Allocation(request="a", cpuset={0, 1}, mems={0}, policy="packed", metrics={"cores": 1})
    assert Result(status="optimal", engine="cpsat", allocations=(given,)).require() == (given,)


def test_a_result_without_allocations_raises_the_clash():
    with pytest.raises(InfeasibleError) as caught:
        Result(status="infeasible", engine="cpsat", infeasible=CLASH).require()
    assert caught.value.infeasible is CLASH


def test_a_result_that_knows_nothing_says_so_when_required():
    with pytest.raises(CpusatError) as caught:
        Result(status="unknown", engine="greedy", notes=("nothing was found in time",)).require()
    assert str(caught.value)


def test_a_result_is_written_and_read_again():
    given = Allocation(
        request="a", cpuset="0-1", mems="0", policy="packed", metrics={"cores": 1}, greedy={"cores": 2}
    )
    result = Result(
        status="optimal", engine="cpsat", allocations=(given,), metrics={"cores": 1}, bounds={"cores": 1}
    )
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert result.model_dump()["allocations"][0]["cpuset"] == "0-1"
