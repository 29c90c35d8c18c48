"""How many CPUs a result consumes, from a quantity as Kubernetes writes them."""

import re
from decimal import Decimal

from lightkube.utils.quantity import MULTIPLIERS

from models import MAX_CPU

LONGEST = 20
"""Characters of a quantity: with more, products would be rounded, and 0.99…9 would become 1."""

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)([a-zA-Z]{0,2})", re.ASCII)


def whole_cpus(quantity: object) -> int:
    """CPUs of ``4``, ``"1k"``, ``"1Ki"`` or ``"2000m"``. Raises ``ValueError`` for what is no number of CPUs.

    Exact, unlike lightkube's own ``parse_quantity``, which rounds up: there 3.9999 CPUs are 4.
    """
    number = _number(quantity)
    if not 0 < number <= MAX_CPU + 1:
        raise ValueError(f"is {quantity!r}: not from 1 to {MAX_CPU + 1}")
    if number % 1:
        raise ValueError(f"is {quantity!r}: not a whole number of CPUs")
    return int(number)


def _number(quantity: object) -> Decimal:
    text = _text(quantity)
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in MULTIPLIERS:
        raise ValueError(f"is {text!r}: no quantity such as 4 or 1k")
    return Decimal(found[1]) * Decimal(str(MULTIPLIERS[found[2]]))


def _text(quantity: object) -> str:
    """It as text, cut where it is too long to be one."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise ValueError("is neither text nor a number, but should be a quantity such as 4 or 1k")
    if isinstance(quantity, int) and abs(quantity) >= 10**LONGEST:
        raise ValueError("is a number of astronomical size")
    text = str(quantity)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
