from collections.abc import Callable
from itertools import count

import pytest

from driver.cluster.listing import LONGEST, MOST_PAGES, PAGE, CutError, pages
from driver.cluster.objects import Metadata, Object, Page, PageMetadata
from driver.cluster.transport import TooLongError

Query = dict[str, str | int]


def served(sizes: list[int], largest: int, asked: list[Query]) -> Callable[[Query], Page]:
    """Serves objects of these sizes, in pages that must not be larger than that."""

    def fetch(query: Query) -> Page:
        asked.append(query)
        first = int(query.get("continue", 0))
        last = first + int(query["limit"])
        if sum(sizes[first:last]) > largest:
            raise TooLongError("the answer is too long")
        items = [Object(Metadata(uid=str(number))) for number in range(first, min(last, len(sizes)))]
        return Page(PageMetadata("1", str(last) if last < len(sizes) else ""), items)

    return fetch


@pytest.mark.parametrize("number", [0, 1, PAGE, PAGE + 1, 10 * PAGE])
def test_all_pages_are_seen(number: int) -> None:
    asked: list[Query] = []
    found = [each.metadata.uid for page in pages(served([1] * number, PAGE, asked)) for each in page.items]
    assert found == [str(each) for each in range(number)]
    assert len(asked) == max(1, -(-number // PAGE))
    assert "continue" not in asked[0]


def test_after_large_objects_pages_grow_again() -> None:
    asked: list[Query] = []
    sizes = [100] * 10 + [1] * 2000
    found = [each.metadata.uid for page in pages(served(sizes, 500, asked)) for each in page.items]
    assert found == [str(each) for each in range(len(sizes))]
    assert asked[-1]["limit"] == PAGE
    assert len(asked) < 40


def test_an_object_that_is_too_long_alone_ends_the_list() -> None:
    asked: list[Query] = []
    with pytest.raises(TooLongError):
        list(pages(served([1, 1, 1000, 1], 500, asked)))
    assert asked[-1] == {"limit": 1, "continue": "2"}


def test_a_list_has_an_end_in_time_and_in_pages() -> None:
    fetched = count()

    def endless(_: Query) -> Page:
        return Page(PageMetadata("1", str(next(fetched))), [])

    with pytest.raises(CutError, match="no end"):
        list(pages(endless))
    assert next(fetched) == MOST_PAGES
    now = count(0, LONGEST / 10)
    with pytest.raises(CutError, match="no end"):
        list(pages(endless, lambda: next(now)))
    assert next(fetched) < MOST_PAGES + 20
