"""Tables taken together and split again, against trying everything."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.reduction.minplus import FEW, Table, add, entry, never
from solver.reduction.splits import Sums, split

NEVER = never(np.zeros(1, dtype=np.int64))
COSTS = st.one_of(st.integers(0, 3), st.just(NEVER))


def table(costs: list[int], dtype: type = np.int64) -> Table:
    made = np.array(costs, dtype=dtype)
    made[made >= NEVER] = never(made)
    return made


def tables(longest: int) -> st.SearchStrategy[list[int]]:
    return st.lists(COSTS, min_size=1, max_size=longest)


def by_trial(parts: list[list[int]]) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Per total the least cost and, of the ways to it, the one that takes most from the first, then the next."""
    best: dict[int, tuple[int, tuple[int, ...]]] = {}
    for takes in product(*(range(len(part)) for part in parts)):
        cost = sum(part[take] for part, take in zip(parts, takes, strict=True))
        found = (cost, tuple(-take for take in takes))
        if cost < NEVER:
            best[sum(takes)] = min(best.get(sum(takes), found), found)
    return {total: (cost, tuple(-take for take in takes)) for total, (cost, takes) in best.items()}


@given(st.lists(tables(4), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_a_split_is_cheapest_and_then_takes_most_from_the_first(kinds, order):
    parts = [kinds[kind % len(kinds)] for kind in order]
    known = by_trial(parts)
    for dtype in (np.int64, object):
        sums = Sums(lambda kind, dtype=dtype: table(kinds[kind], dtype), dtype)
        for total in range(-1, 25):
            takes = split(sums, [kind % len(kinds) for kind in order], total)
            assert takes == (list(known[total][1]) if total in known else None)


@given(tables(2 * FEW), tables(2 * FEW))
def test_tables_add_up_to_what_trying_all_ways_finds(a, b):
    whole = {total: cost for total, (cost, _) in by_trial([a, b]).items()}
    expected = [whole.get(total, NEVER) for total in range(len(a) + len(b) - 1)]
    assert add(table(a), table(b)).tolist() == expected
    assert [entry(table(a), table(b), total) for total in range(-1, len(expected) + 1)] == [
        NEVER,
        *expected,
        NEVER,
    ]


@given(st.lists(tables(2 * FEW), min_size=1, max_size=4), tables(2 * FEW))
def test_a_stack_of_tables_adds_up_row_by_row(rows, b):
    longest = max(map(len, rows))
    rows = [row + [NEVER] * (longest - len(row)) for row in rows]
    together = add(np.stack([table(row) for row in rows]), table(b))
    assert together.tolist() == [add(table(row), table(b)).tolist() for row in rows]
