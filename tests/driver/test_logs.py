"""Log lines, as programs read them."""

import io
import json
import logging
import subprocess
import sys
import threading

import pytest

from driver import logs
from driver.ports import ClaimRef

CLAIM = ClaimRef("0a1b-2c", "default", "web")
log = logging.getLogger("driver.test")


@pytest.fixture
def lines():
    """What was logged since, as objects."""
    root, hook = logging.getLogger(), threading.excepthook
    before = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure(logging.StreamHandler(stream))
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], threading.excepthook = before[0], hook
    root.setLevel(before[1])


@pytest.fixture(autouse=True)
def _hooks(monkeypatch):
    monkeypatch.setattr("sys.excepthook", __import__("sys").excepthook)
    monkeypatch.setattr(logging, "raiseExceptions", True)


def test_a_line_has_time_level_logger_and_message(lines):
    log.info("%d CPUs", 4)
    (line,) = lines()
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "logger": "driver.test", "message": "4 CPUs"}


def test_lines_about_a_claim_name_it_and_others_do_not(lines):
    with logs.about(CLAIM):
        log.info("inside")
    log.info("outside")
    inside, outside = lines()
    assert (inside["claim"], inside["namespace"], inside["name"]) == ("0a1b-2c", "default", "web")
    assert "claim" not in outside


def test_a_claim_can_be_named_by_the_line_itself_and_other_extras_stand_beside_it(lines):
    with logs.about(ClaimRef("other")):
        log.warning("late", extra={"claim": CLAIM, "fallback": "timeout", "seconds": 2.5})
    (line,) = lines()
    assert (line["claim"], line["fallback"], line["seconds"]) == ("0a1b-2c", "timeout", 2.5)


def test_threads_do_not_see_each_others_claims(lines):
    with logs.about(CLAIM):
        thread = threading.Thread(target=log.info, args=("elsewhere",))
        thread.start()
        thread.join()
    assert "claim" not in lines()[0]


def test_text_from_outside_can_neither_end_a_line_nor_make_it_endless(lines):
    log.error("%s", 'x\n{"level": "info"}\n' + "y" * 100_000)
    (line,) = lines()
    assert len(line["message"]) < 2 * logs.LONGEST


def test_debug_lines_appear_only_if_asked_for(lines):
    log.debug("a detail")
    assert lines() == []
    stream = io.StringIO()
    logs.configure(logging.StreamHandler(stream), verbose=True)
    log.debug("a detail")
    assert json.loads(stream.getvalue())["level"] == "debug"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ends_a_thread_is_logged_with_its_traceback(lines):
    def fail():
        raise RuntimeError("out of luck")

    thread = threading.Thread(target=fail, name="nri")
    thread.start()
    thread.join()
    (line,) = lines()
    assert (line["level"], line["message"]) == ("critical", "nri ended by an error")
    assert "RuntimeError: out of luck" in line["error"]


class Stuck(io.StringIO):
    """A stream whose reader does not read until told so."""

    def __init__(self):
        super().__init__()
        self.reads = threading.Event()

    def write(self, text):
        self.reads.wait(60)
        return super().write(text)


def test_who_logs_does_not_wait_for_a_stuck_reader_and_lines_beyond_the_limit_are_dropped():
    stream = Stuck()
    handler = logs.Lines(stream)
    handler.setFormatter(logs.JSONLines())
    for number in range(logs.MOST_WAITING + 50):
        handler.handle(logging.makeLogRecord({"msg": str(number)}))
    assert 48 <= handler.dropped <= 50
    stream.reads.set()
    handler.drain(60)
    first, loss, *others = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert first == "0"
    assert loss == f"{handler.dropped} lines of the log were dropped, for nobody read them"
    assert 1 + len(others) + handler.dropped == logs.MOST_WAITING + 50


def test_a_closed_stream_does_not_end_the_writing_thread():
    stream = io.StringIO()
    handler = logs.Lines(stream)
    handler.setFormatter(logs.JSONLines())
    stream.close()
    for _ in range(3):
        handler.handle(logging.makeLogRecord({"msg": "unheard"}))
    handler.drain(60)
    assert handler.dropped == 3


def test_without_a_standard_error_no_line_waits_to_be_written():
    script = """
import logging, threading
from driver.logs import configure
configure()
logging.error("unheard")
threading.Thread(target=lambda: 1 / 0).start()
print([type(each).__name__ for each in logging.getLogger().handlers])
"""
    line = ["/bin/sh", "-c", f'exec {sys.executable} -c "$1" 2>&-', "sh", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['NullHandler']\n", "")
