"""Claims that come and go at random until as many as asked for were served."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from models import Request

FULLEST, JOINT = 0.8, 0.05
"""Part of the machine that claims hold together at most; part of the claims that have two requests."""


def requests(chance: random.Random, size: int) -> list[Request]:
    """Mostly one request, of up to a fourth of a machine of that many CPUs."""
    return [
        Request(
            name=f"r{number}",
            cpus=chance.randint(1, max(1, size // 4 // (number + 1))),
            policy=chance.choice(("packed", "packed", "distributed")),
            prefer_l3=chance.random() < 0.2,
        )
        for number in range(1 + (chance.random() < JOINT))
    ]


ClaimDocument = TypeVar("ClaimDocument")


def turnover(
    claims: int,
    size: int,
    seed: int,
    come: Callable[[list[Request]], ClaimDocument],
    go: Callable[[ClaimDocument], None],
) -> Iterator[list[Request]]:
    """What each claim that came had asked for; before it, the oldest ones go until it has room."""
    chance = random.Random(seed)
    live: deque[tuple[int, ClaimDocument]] = deque()
    for _ in range(claims):
        asked = requests(chance, size)
        cpus = sum(each.cpus for each in asked)
        while live and cpus + sum(held for held, _ in live) > FULLEST * size:
            go(live.popleft()[1])
        live.append((cpus, come(asked)))
        yield asked
