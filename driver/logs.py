"""Structured logs: one JSON object a line on standard error, with the claim that a line is about."""

import atexit
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from driver.ports import ClaimRef

MOST_WAITING, LONGEST = 1000, 8000
"""Lines that wait to be written; characters of one value. Much of a text may have come from outside."""

LAST_WORDS = 2.0
"""Seconds that the process waits at its end for its lines to be written."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "claim"}
_CHATTY = ("httpx2", "httpcore2", "lightkube")

_claim: ContextVar[ClaimRef | None] = ContextVar("claim", default=None)


@contextmanager
def about(claim: ClaimRef) -> Iterator[None]:
    """Everything that this thread logs inside names the claim."""
    token = _claim.set(claim)
    try:
        yield
    finally:
        _claim.reset(token)


class JSONLines(logging.Formatter):
    """Time, level, logger, message; the claim, of ``extra={"claim": ref}`` or ``about``; other extras."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_names(getattr(record, "claim", None) or _claim.get()),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps({name: _bounded(value) for name, value in line.items()})


def _names(claim: ClaimRef | None) -> dict[str, object]:
    if claim is None:
        return {}
    parts = {"claim": claim.uid, "namespace": claim.namespace, "name": claim.name}
    return {key: value for key, value in parts.items() if value}


def _bounded(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


class Lines(logging.Handler):
    """Hands lines to a thread that writes them, and drops them rather than wait for it.

    Whoever reads our standard error may be stuck on a full disk. A handler that the container runtime waits for
    must not be stuck with it.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream, self.dropped = stream, 0
        self._waiting: queue.Queue[str] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._write, name="logs", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Format it here, where it is known which claim this is about, and leave it to be written."""
        try:
            self._waiting.put_nowait(self.format(record))
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)

    def drain(self, timeout: float = LAST_WORDS) -> None:
        """Wait until all lines are written, at most so many seconds."""
        end = time.monotonic() + timeout
        while self._waiting.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)

    def _write(self) -> None:
        told = 0
        while True:
            line = self._waiting.get()
            try:
                self.stream.write(line + "\n")
                if lost := self.dropped - told:
                    self.stream.write(self.format(_loss(lost)) + "\n")
                    told += lost
                self.stream.flush()
            except (OSError, ValueError):
                self.dropped += 1
            self._waiting.task_done()


def _loss(lines: int) -> logging.LogRecord:
    text = f"{lines} lines of the log were dropped, for nobody read them"
    return logging.makeLogRecord({"name": __name__, "levelname": "WARNING", "msg": text})


def configure(handler: logging.Handler | None = None, *, verbose: bool = False) -> None:
    """Send all logs of the process, and the errors that nobody caught, to standard error (if open) as JSON lines.

    ``handler``: where to instead, such as a ``StreamHandler`` that waits until its line is written.
    """
    if handler is None and sys.stderr is not None:
        handler = lines = Lines(sys.stderr)
        atexit.register(lines.drain)
    handler = handler or logging.NullHandler()
    handler.setFormatter(JSONLines())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def drain(timeout: float) -> None:
    """Wait until what was logged so far is written, at most so many seconds."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Lines):
            handler.drain(timeout)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None) -> None:
    here = threading.current_thread().name
    logging.getLogger(__name__).critical("%s ended by an error", here, exc_info=(kind, error or kind(), traceback))
