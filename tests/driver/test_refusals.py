import pytest

from driver import refusals
from driver.errors import RefusedError
from driver.refusals import UNDECIDED, Question, Refusals
from models import Request

FREE = frozenset(range(4))
ONE = Question((Request(name="r", cpus=8),), FREE)


def said(memory: Refusals, question: Question) -> str | None:
    try:
        memory.check(question)
    except RefusedError as error:
        return error.message
    return None


@pytest.mark.parametrize(
    "other",
    [
        Question((Request(name="r", cpus=9),), FREE),
        Question((Request(name="s", cpus=8),), FREE),
        Question((Request(name="r", cpus=8, full_cores=True),), FREE),
        Question((*ONE.requests, Request(name="s", cpus=1)), FREE),
        Question(ONE.requests, FREE | {4}),
        Question(ONE.requests, FREE - {0}),
        Question(ONE.requests, FREE, frozenset({9})),
    ],
)
def test_a_refusal_holds_for_the_same_requests_and_the_same_cpus_alone(other: Question) -> None:
    memory = Refusals()
    memory.keep(ONE, RefusedError("NotPlaceable", "8 asked, 4 free"))
    assert said(memory, Question((Request(name="r", cpus=8),), frozenset({3, 2, 1, 0}))) == "8 asked, 4 free"
    assert said(memory, other) is None


def test_what_more_time_may_change_is_forgotten_after_a_while() -> None:
    now = [0.0]
    memory = Refusals(lambda: now[0])
    memory.keep(ONE, RefusedError("NotDecided", "no time"))
    now[0] = UNDECIDED
    assert said(memory, ONE) == "no time"
    now[0] += 0.1
    assert said(memory, ONE) is None
    memory.keep(ONE, RefusedError("NotPlaceable", "8 asked, 4 free"))
    now[0] += 1e6
    assert said(memory, ONE) == "8 asked, 4 free"


@pytest.mark.parametrize("reason", ["Held", "BadConfig", "Defect", "Disk"])
def test_what_does_not_follow_from_the_question_is_not_remembered(reason: str) -> None:
    memory = Refusals()
    memory.keep(ONE, RefusedError(reason, "…"))  # type: ignore[arg-type]
    assert said(memory, ONE) is None


def test_of_very_many_those_are_remembered_that_were_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MOST", 3)
    memory = Refusals()
    questions = [Question(ONE.requests, frozenset({cpu})) for cpu in range(4)]
    for question in questions[:3]:
        memory.keep(question, RefusedError("NotPlaceable", "no"))
    assert said(memory, questions[0]) == "no"
    memory.keep(questions[3], RefusedError("NotPlaceable", "no"))
    assert [said(memory, each) for each in questions] == ["no", None, "no", "no"]
