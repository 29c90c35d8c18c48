"""Lists, page by page and within bounds: a list either comes to its end, or counts as not seen."""

import time
from collections.abc import Callable, Iterator

from driver.cluster.objects import Page
from driver.cluster.transport import TooLongError

PAGE = 250
"""Objects that are asked for at once; fewer where they are large. Claims have a few kB each."""

MOST_PAGES, LONGEST = 2_000, 240.0
"""Of a list, and the seconds that it may take: the API server itself forgets it after five minutes."""

LARGEST_TOKEN = 8 << 10
"""Characters by which the server knows the next page again."""


class CutError(Exception):
    """The list has no end that we are going to see."""


def pages(
    fetch: Callable[[dict[str, str | int]], Page], clock: Callable[[], float] = time.monotonic
) -> Iterator[Page]:
    """All pages. ``fetch`` gets one, from query parameters.

    A page that is too long is asked for again with fewer objects. Raises ``CutError``, or what ``fetch`` raises:
    then what came before is no list.
    """
    limit, token, known, end = PAGE, "", set[int](), clock() + LONGEST
    for _ in range(MOST_PAGES):
        if clock() > end:
            break
        try:
            page = fetch({"limit": limit, **({"continue": token} if token else {})})
        except TooLongError:
            if limit == 1:
                raise
            limit = max(1, limit // 4)
            continue
        yield page
        token = _next(page, known)
        if not token:
            return
        limit = min(PAGE, 2 * limit)
    raise CutError("the list has no end")


def _next(page: Page, known: set[int]) -> str:
    """Where the next page begins, empty after the last one."""
    token = page.metadata.continue_
    if hash(token) in known or len(token) > LARGEST_TOKEN:
        raise CutError("the list goes in circles, or does not say how it goes on")
    known.add(hash(token))
    return token
