"""hwloc XML as a tree of objects, read within bounds. What the objects mean is in ``hwloc``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ErrorString

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from models import BadInputError
from models.cpuset import MAX_CPU

MAX_DEPTH = 200
MAX_ELEMENTS = 1_000_000

_ALL = (1 << MAX_CPU + 1) - 1
_BITMAP = re.compile(r"(0xf\.\.\.f(?:,|$))?((?:(?:0x[0-9a-fA-F]{1,8})?(?:,|$))*)", re.ASCII)
_EXTRAS = ("distances", "distances2", "cpukind")


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


class HwlocDocument:
    """The objects of a document, and the elements beside or inside them with the object they stand in.

    The parser calls it back for each element, so that bounds hold before anything grows.
    """

    def __init__(self) -> None:
        self.roots: list[HwlocObject] = []
        self.extras: list[tuple[HwlocObject | None, Element]] = []
        self._objects: list[HwlocObject] = []
        self._open_extras: list[Element] = []
        self._depth = self._count = 0

    @property
    def root(self) -> HwlocObject:
        """The outermost object."""
        if not self.roots:
            raise BadInputError("is hwloc XML without any object")
        return self.roots[0]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """The parser met a start tag."""
        self._depth, self._count = self._depth + 1, self._count + 1
        self._check_bounds(tag)
        parent = self._objects[-1] if self._objects else None
        if tag == "object":
            found = HwlocObject(attributes.get("type", ""), attributes, parent)
            (parent.children if parent else self.roots).append(found)
            self._objects.append(found)
        elif self._open_extras or tag in _EXTRAS:
            element = Element(tag, attributes)
            if self._open_extras:
                self._open_extras[-1].append(element)
            else:
                self.extras.append((parent, element))
            self._open_extras.append(element)

    def data(self, text: str) -> None:
        """The parser met text."""
        if self._open_extras:
            self._open_extras[-1].text = (self._open_extras[-1].text or "") + text

    def end(self, tag: str) -> None:
        """The parser met an end tag."""
        self._depth -= 1
        if tag == "object":
            self._objects.pop()
        elif self._open_extras:
            self._open_extras.pop()

    def close(self) -> "HwlocDocument":
        """The parser is done."""
        return self

    def _check_bounds(self, tag: str) -> None:
        if self._count == 1 and tag != "topology":
            raise BadInputError(f"is XML, but not from hwloc: the root element is <{tag[:40]}>, not <topology>")
        if self._depth > MAX_DEPTH:
            raise BadInputError(f"XML is nested deeper than {MAX_DEPTH} elements")
        if self._count > MAX_ELEMENTS:
            raise BadInputError(f"XML has more than {MAX_ELEMENTS} elements")


def parse_hwloc_xml(text: str) -> HwlocDocument:
    """Read the document. Raises ``BadInputError`` with the line, on entities, on depth and on other formats."""
    document = HwlocDocument()
    parser = DefusedXMLParser(target=document)
    try:
        parser.feed(text)
        parser.close()
    except ParseError as error:
        line, column = error.position
        reason = f"is not valid XML: {ErrorString(error.code)}"
        raise BadInputError(reason, place=f"line {line}, column {column}") from None
    except DefusedXmlException as error:
        raise BadInputError(f"XML that defines entities is refused ({type(error).__name__})") from None
    return document


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
