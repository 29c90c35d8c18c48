"""Reads text from users: within size limits, decoded, and refused with one line if it is not text."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from models import BadInputError
from models.cpuset import MAX_CPU

MAX_BYTES = 64 * 2**20
MAX_CHARACTERS = 16 * 2**20
"""JSON and tables of the largest machine have 8 MB; only XML, whose bitmaps grow with the machine, has more."""
MAX_VALUES = 1_000_000
"""JSON values: 65,536 CPUs with all their domains have 600,000. As Python objects they take 100 bytes each."""

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_file(path: Path) -> str:
    """The file's text. Raises ``BadInputError``, naming the file, if it cannot be read, is too big or is not text.

    Pipes are read too, so that ``<(lscpu -p)`` works.
    """
    try:
        with path.open("rb") as stream:
            return decode(_read_bounded(stream))
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror or error}", file=str(path)) from error
    except ValueError:
        raise BadInputError("is not a path", file=repr(str(path))) from None
    except BadInputError as error:
        raise error.within(str(path)) from None


def read_stream(stream: TextIO | None) -> str:
    """The text of a stream, under the same bounds as a file. Python has ``None`` for a closed standard input."""
    if stream is None:
        raise BadInputError("is closed; give a file, or pipe text into it")
    binary = getattr(stream, "buffer", None)
    if binary is not None:
        return decode(_read_bounded(binary))
    text = stream.read(MAX_BYTES + 1)
    return decode(text.encode("utf-8", "surrogatepass"))


def _read_bounded(stream: BinaryIO) -> bytes:
    return stream.read(MAX_BYTES + 1)


def decode(data: bytes) -> str:
    """UTF-8 text of the bytes, without a byte order mark; ``BadInputError`` where they are no text."""
    if len(data) > MAX_BYTES:
        raise BadInputError(f"is larger than {MAX_BYTES // 2**20} MB, the most that is read")
    if data.startswith(_UTF16_MARKS):
        raise BadInputError("is UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"is not UTF-8 text (byte {error.start}); is it compressed or binary?") from None
    if "\0" in text:
        raise BadInputError("is not text: it holds NUL bytes")
    if not text.strip():
        raise BadInputError("is empty")
    return text


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON is anything
    """The JSON value; ``BadInputError`` with line and column, or on a key that is given twice."""
    check_length(text)
    if text.count(",") > MAX_VALUES:
        raise BadInputError(f"JSON holds more than {MAX_VALUES} values")
    try:
        return json.loads(text, object_pairs_hook=_without_repeated_keys)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInputError(f"is not valid JSON: {error.msg}", place=place) from None
    except RecursionError:
        raise BadInputError("JSON is nested too deeply") from None
    except ValueError as error:
        raise BadInputError(f"JSON has a number that is too long: {str(error)[:60]}") from None


def check_length(text: str) -> None:
    """Refuse text that is not XML and larger than any machine needs."""
    if len(text) > MAX_CHARACTERS:
        raise BadInputError(f"is text of more than {MAX_CHARACTERS // 2**20} MB, which no machine needs")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_CPU + 1:
        raise BadInputError(f"an object in the JSON has more than {MAX_CPU + 1} keys")
    found = dict(pairs)
    if len(found) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadInputError(f"key {key[:60]!r} is given twice in one object")
    return found
