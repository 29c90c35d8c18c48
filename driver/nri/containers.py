"""The containers of a node, found by what is asked of them rather than one by one."""

from collections.abc import Iterator

from driver.nri import dues
from driver.nri.container import Container
from driver.nri.plan import Plan


class Containers:
    """Containers by id, with indices. Not safe to use from several threads.

    There may be thousands, and handlers ask at every event. What is in line is passed over once for each plan.
    """

    def __init__(self) -> None:
        self._all: dict[str, Container] = {}
        self._carriers: dict[str, dict[str, None]] = {}
        self._namers: dict[str, dict[str, None]] = {}
        self._plan: Plan | None = None
        self._loose: dict[str, Container] = {}
        self._unjudged: dict[str, None] = {}

    def __iter__(self) -> Iterator[Container]:
        """All of them."""
        return iter(self._all.values())

    def __contains__(self, container_id: str) -> bool:
        """Whether it is known."""
        return container_id in self._all

    def get(self, container_id: str) -> Container | None:
        """The container, if it is known."""
        return self._all.get(container_id)

    def put(self, container: Container) -> None:
        """Keep it as it is now."""
        former = self._all.get(container.id)
        if former is None or former.claims is not container.claims:
            self.drop(container.id)
            self._index(container)
        self._all[container.id] = container
        self._unjudged[container.id] = None

    def drop(self, container_id: str) -> None:
        """Forget it."""
        if (former := self._all.pop(container_id, None)) is None:
            return
        for index, keys in ((self._carriers, former.claims), (self._namers, former.sight.named)):
            for uid in keys:
                index[uid].pop(container_id, None)
                if not index[uid]:
                    del index[uid]
        self._loose.pop(container_id, None)
        self._unjudged.pop(container_id, None)

    def carriers(self, uid: str) -> list[Container]:
        """Those that carry a claim."""
        return [self._all[each] for each in self._carriers.get(uid, ())]

    def all_carriers(self) -> list[Container]:
        """Those that carry any claim."""
        ids = dict.fromkeys(each for carriers in self._carriers.values() for each in carriers)
        return [self._all[each] for each in ids]

    def names(self, uid: str) -> bool:
        """Whether one of them names the claim in its environment, rightly or not."""
        return uid in self._namers

    def loose(self, plan: Plan) -> list[Container]:
        """Those that are not for certain in line with the plan (``dues.is_loose``)."""
        if plan is not self._plan:
            self._plan, self._loose, self._unjudged = plan, {}, dict.fromkeys(self._all)
        for container_id in self._unjudged:
            container = self._all[container_id]
            if dues.is_loose(container, plan):
                self._loose[container_id] = container
            else:
                self._loose.pop(container_id, None)
        self._unjudged.clear()
        return list(self._loose.values())

    def _index(self, container: Container) -> None:
        for index, keys in ((self._carriers, container.claims), (self._namers, container.sight.named)):
            for uid in keys:
                index.setdefault(uid, {})[container.id] = None
