"""hwloc XML as a tree of objects, read within bounds. What the objects mean is in ``hwloc``."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ErrorString

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from models import BadInputError
from models.cpuset import MAX_CPU

MAX_DEPTH = 200
MAX_ELEMENTS = 1_000_000

_ALL = (1 << MAX_CPU + 1) - 1
_BITMAP = re.compile(r"(0xf\.\.\.f(?:,|$))?((?:(?:0x[0-9a-fA-F]{1,8})?(?:,|$))*)", re.ASCII)
_OTHER_ELEMENTS = ("distances", "distances2", "cpukind")


@dataclass(eq=False)
class HwlocObject:
    """One ``<object>``: its type, attributes, infos and place in the tree."""

    type: str
    attributes: dict[str, str]
    parent: "HwlocObject | None"
    children: list["HwlocObject"] = field(default_factory=list)

    def ancestors(self) -> Iterator["HwlocObject"]:
        """The objects around this one, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def walk(self) -> Iterator["HwlocObject"]:
        """This object and all inside it, in the order of the file."""
        pending = [self]
        while pending:
            found = pending.pop()
            yield found
            pending.extend(reversed(found.children))

    def number(self, attribute: str) -> int | None:
        """A whole number among the attributes; ``None`` without one."""
        text = self.attributes.get(attribute, "")
        return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None

    def cpus(self, attribute: str = "cpuset") -> int | None:
        """A bitmap among the attributes, as a mask; ``None`` without one."""
        text = self.attributes.get(attribute)
        return None if text is None else parse_bitmap(text, self.place)

    @property
    def place(self) -> str:
        """How errors name the object: ``NUMANode 3``."""
        return f"{self.type} {self.attributes.get('os_index', '')}".strip()


@dataclass
class HwlocDocument:
    """The root object, and the elements that stand beside or inside the objects, with those they stand in."""

    root: HwlocObject
    extras: list[tuple[HwlocObject | None, Element]] = field(default_factory=list)


def parse_hwloc_xml(text: str) -> HwlocDocument:
    """Read the document. Raises ``BadInputError`` with the line, on entities, on depth and on other formats."""
    try:
        return _build(iterparse(io.BytesIO(text.encode("utf-8", "surrogatepass")), events=("start", "end")))
    except ParseError as error:
        line, column = error.position
        reason = f"is not valid XML: {ErrorString(error.code)}"
        raise BadInputError(reason, place=f"line {line}, column {column}") from None
    except DefusedXmlException as error:
        raise BadInputError(f"XML that defines entities is refused ({type(error).__name__})") from None
    except (LookupError, ValueError) as error:
        raise BadInputError(f"is XML in an encoding that is not read: {error}") from None


def _build(events: Iterator[tuple[str, Element]]) -> HwlocDocument:
    root: HwlocObject | None = None
    open_objects: list[HwlocObject] = []
    extras: list[tuple[HwlocObject | None, Element]] = []
    depth = count = 0
    for event, element in events:
        if event == "start":
            depth, count = depth + 1, count + 1
            _check_bounds(depth, count, element)
            if element.tag == "object":
                opened = _open(element, open_objects)
                root = root or opened
        else:
            depth -= 1
            if element.tag == "object":
                open_objects.pop()
                element.clear()
            elif element.tag in _OTHER_ELEMENTS:
                extras.append((open_objects[-1] if open_objects else None, element))
    if root is None:
        raise BadInputError("is hwloc XML without any object")
    return HwlocDocument(root, extras)


def _check_bounds(depth: int, count: int, element: Element) -> None:
    if count == 1 and element.tag != "topology":
        raise BadInputError(f"is XML, but not of hwloc: its root is <{element.tag[:40]}>, not <topology>")
    if depth > MAX_DEPTH:
        raise BadInputError(f"XML is nested deeper than {MAX_DEPTH} elements")
    if count > MAX_ELEMENTS:
        raise BadInputError(f"XML has more than {MAX_ELEMENTS} elements")


def _open(element: Element, open_objects: list[HwlocObject]) -> HwlocObject:
    parent = open_objects[-1] if open_objects else None
    opened = HwlocObject(element.get("type", ""), dict(element.attrib), parent)
    if parent is not None:
        parent.children.append(opened)
    open_objects.append(opened)
    return opened


def parse_bitmap(text: str, place: str = "") -> int:
    """Mask of an hwloc bitmap; negative where it is endless.

    Words of 32 bits, most significant first, an empty word is 0: ``0x3,,0x1`` holds CPUs 0, 64 and 65.
    ``0xf...f`` in front stands for all above.
    """
    match = _BITMAP.fullmatch(text.strip())
    words = match[2].split(",") if match else []
    if match is None or len(words) > (MAX_CPU + 1) // 32:
        raise BadInputError(f"{text[:40]!r} is not a bitmap of at most {MAX_CPU + 1} CPUs", place=place)
    endless = -1 if match[1] else 0
    if words == [""] and endless:
        return -1
    bits = int("".join((word[2:] or "0").zfill(8) for word in words), 16)
    return bits | endless << 32 * len(words)


@lru_cache(maxsize=256)
def members(mask: int, cpus: frozenset[int]) -> frozenset[int]:
    """Those of the CPUs that the mask holds."""
    bits = bin(mask & _ALL)[:1:-1]
    return frozenset(cpu for cpu in cpus if bits[cpu : cpu + 1] == "1")
